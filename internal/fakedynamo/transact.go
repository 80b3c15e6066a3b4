package fakedynamo

import (
	"errors"
	"runtime"
	"slices"
	"time"
)

// Limits of a transaction (API reference, "TransactWriteItems").
const (
	maxTransactItems = 100
	maxTransactBytes = 4 << 20
	tokenLife        = 10 * time.Minute
	maxTokens        = 50_000 // that the fake remembers at least
)

type transactWriteItems struct {
	TransactItems               []transactItem
	ClientRequestToken          string
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

type transactItem struct {
	Put            *writeInput
	Update         *writeInput
	Delete         *writeInput
	ConditionCheck *writeInput
}

// only is the item's one action.
func (t transactItem) only() (actionKind, *writeInput, error) {
	var kind actionKind
	var in *writeInput
	for k, candidate := range []*writeInput{actionPut: t.Put, actionUpdate: t.Update, actionDelete: t.Delete, actionCheck: t.ConditionCheck} {
		if candidate == nil {
			continue
		}
		if in != nil {
			return 0, nil, validation("TransactItems can only contain one of Check, Put, Update or Delete")
		}
		kind, in = actionKind(k), candidate
	}
	if in == nil {
		return 0, nil, validation("Invalid Request: TransactWriteRequest should contain Delete or Put or Update request")
	}
	if kind == actionUpdate && in.UpdateExpression == nil {
		return 0, nil, validation("Value null at 'transactItems.member.update.updateExpression' failed to satisfy constraint: Member must not be null")
	}
	return kind, in, nil
}

func (r *transactWriteItems) touches(add func(string, string, item)) {
	for _, t := range r.TransactItems {
		if _, in, err := t.only(); err == nil {
			in.touch(add)
		}
	}
}

// transaction is one that runs: others that meet its items conflict. Once it is
// decided, a serializable read sees what it leaves.
type transaction struct {
	actions []*action
	before  []*record
	after   []*record
	effects [][]effect
	costs   []units
	decided bool
}

// tokenState remembers a request token.
type tokenState struct {
	digest  uint64
	running bool
	until   time.Time
	reads   map[string]units // what a repetition costs
}

type transactWriteResult struct {
	ConsumedCapacity []*consumed `json:",omitempty"`
}

func (r *transactWriteItems) run(s *Server, c *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	tx := &transaction{}
	if err := r.resolve(s, tx); err != nil {
		return nil, err
	}
	token, repeated, err := s.token(r)
	if err != nil {
		return nil, err
	}
	if repeated {
		for name, u := range token.reads {
			c.charge(name, u)
		}
		return transactWriteResult{c.consumedAll(r.ReturnConsumedCapacity)}, nil
	}
	if err := tx.prepare(s, c); err != nil {
		delete(s.tokens, r.ClientRequestToken)
		return nil, err
	}
	tx.commit(s, c)
	if token != nil {
		token.running, token.until, token.reads = false, s.now().Add(tokenLife), tx.repetition()
	}
	return transactWriteResult{c.consumedAll(r.ReturnConsumedCapacity)}, nil
}

// resolve checks the request without looking at items, apart from sizes.
func (r *transactWriteItems) resolve(s *Server, tx *transaction) error {
	if n := len(r.TransactItems); n == 0 || n > maxTransactItems {
		return validation("1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to 100 and greater than or equal to 1")
	}
	seen := map[lockKey]bool{}
	for _, t := range r.TransactItems {
		kind, in, err := t.only()
		if err != nil {
			return err
		}
		a, err := s.action(kind, in)
		if err != nil {
			return err
		}
		if seen[a.lock()] {
			return validation("Transaction request cannot include multiple operations on one item")
		}
		seen[a.lock()] = true
		tx.actions = append(tx.actions, a)
	}
	return nil
}

// token finds or begins the request's token.
func (s *Server) token(r *transactWriteItems) (state *tokenState, repeated bool, err error) {
	name := r.ClientRequestToken
	if name == "" {
		return nil, false, nil
	}
	if len(name) > 36 {
		return nil, false, validation("Value '%s' at 'clientRequestToken' failed to satisfy constraint: Member must have length less than or equal to 36", name)
	}
	digest := r.digest()
	known := s.tokens[name]
	switch {
	case known == nil || !known.running && !s.now().Before(known.until):
		state = &tokenState{digest: digest, running: true}
		s.remember(name, state)
		return state, false, nil
	case known.digest != digest:
		return nil, false, dynamoError("IdempotentParameterMismatchException", "Idempotent parameters do not match")
	case known.running:
		return nil, false, dynamoError("TransactionInProgressException", "The transaction with the given request token is already in progress.")
	}
	return known, true, nil
}

// remember keeps the token, and of all tokens the newest, so that a test of many
// calls in no time stays small.
func (s *Server) remember(name string, state *tokenState) {
	s.tokens[name] = state
	s.tokenOrder = append(s.tokenOrder, name)
	if len(s.tokenOrder) < 2*maxTokens {
		return
	}
	for _, old := range s.tokenOrder[:maxTokens] {
		if known := s.tokens[old]; known != nil && !known.running {
			delete(s.tokens, old)
		}
	}
	s.tokenOrder = slices.Clone(s.tokenOrder[maxTokens:])
}

// prepare evaluates every item; if all may go on, the items are the
// transaction's own from then on. A cancelled one is charged as well.
func (tx *transaction) prepare(s *Server, c *Call) error {
	reasons := make([]reason, len(tx.actions))
	failed := false
	var demands []demand
	var owner []int
	bytes := 0
	for i, a := range tx.actions {
		before := a.table.base.shown[a.key]
		after, why := tx.try(s, c, i, before)
		var effects []effect
		cost := checkCost(before, true)
		if why == nil && a.kind != actionCheck {
			effects = a.table.effects(before, after)
			cost = writeCost(before, after, effects, true)
		}
		reasons[i] = reason{Code: reasonNone}
		if why != nil {
			reasons[i], failed = *why, true
		}
		bytes += max(before.sizeOrZero(), after.sizeOrZero())
		tx.before, tx.after = append(tx.before, before), append(tx.after, after)
		tx.effects, tx.costs = append(tx.effects, effects), append(tx.costs, cost)
		for _, d := range a.table.writeDemands(a.key, cost, effects) {
			demands, owner = append(demands, d), append(owner, i)
		}
	}
	if bytes > maxTransactBytes {
		return validation("Transaction request cannot include items whose aggregate size exceeds 4 MB: %d bytes", bytes)
	}
	if !failed {
		if refused := s.admit(demands); refused != nil {
			for i := range demands {
				if &demands[i] == refused {
					code, message := tx.actions[owner[i]].table.throttleText(refused.index)
					reasons[owner[i]], failed = reason{Code: code, Message: message}, true
				}
			}
		}
	}
	for i, a := range tx.actions {
		cost := tx.costs[i]
		if failed {
			cost.indexWrite = nil // indexes see committed writes only
		}
		c.charge(a.table.name, cost)
	}
	if !failed {
		return nil
	}
	for _, r := range reasons {
		c.Reasons = append(c.Reasons, r.Code)
	}
	return cancelled(reasons)
}

// try evaluates one item.
func (tx *transaction) try(s *Server, c *Call, i int, before *record) (*record, *reason) {
	a := tx.actions[i]
	if hit := c.fault != nil && c.fault.Item%len(tx.actions) == i; hit {
		switch c.fault.Kind {
		case Conflict:
			return before, conflictReason()
		case Throttle:
			code, message := a.table.throttleText(c.fault.Index)
			return before, &reason{Code: code, Message: message}
		}
	}
	if s.running[a.lock()] != nil {
		return before, conflictReason()
	}
	after, err := a.evaluate(before)
	var failed *apiError
	switch {
	case err == nil:
		return after, nil
	case errors.As(err, &failed) && failed.code == "ConditionalCheckFailedException":
		return before, &reason{Code: reasonCondition, Message: failed.message, Item: failed.item}
	case errors.As(err, &failed):
		return before, &reason{Code: reasonValidation, Message: failed.message}
	}
	return before, &reason{Code: reasonValidation, Message: err.Error()}
}

func conflictReason() *reason {
	return &reason{Code: reasonConflict, Message: "Transaction is ongoing for the item"}
}

// commit applies the writes. With hooks or Options.Overlap it takes its time:
// the mutex, which the caller holds, is let go between the steps.
func (tx *transaction) commit(s *Server, c *Call) {
	hooks := s.hook()
	slow := s.options.Overlap || hooks.Prepared != nil || hooks.Applied != nil
	order := make([]int, len(tx.actions))
	for i := range order {
		order[i] = i
	}
	if slow {
		for _, a := range tx.actions {
			s.running[a.lock()] = tx
		}
		s.away(func() {
			if hooks.Prepared != nil {
				hooks.Prepared(c)
			}
			if hooks.Order != nil {
				order = hooks.Order(c, len(order))
			}
		})
	}
	tx.decided = true
	for n, i := range order {
		a := tx.actions[i]
		if a.kind != actionCheck {
			s.store(a.table, a.key, tx.after[i], tx.effects[i])
			c.Applied = true
		}
		if slow && n < len(order)-1 && (hooks.Applied != nil || n == len(order)/2) {
			s.away(func() {
				if hooks.Applied != nil {
					hooks.Applied(c, n+1)
				}
			})
		}
	}
	if slow {
		for _, a := range tx.actions {
			delete(s.running, a.lock())
		}
	}
}

// away runs f without the mutex and lets others go first.
func (s *Server) away(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
	if s.options.Overlap {
		runtime.Gosched()
	}
}

// repetition is what repeating the transaction under its token costs: reading its
// items.
func (tx *transaction) repetition() map[string]units {
	out := map[string]units{}
	for i, a := range tx.actions {
		u := out[a.table.name]
		u.read += 2 * readUnits(tx.after[i].sizeOrZero(), true)
		out[a.table.name] = u
	}
	return out
}

// serializable is the record that a read must see that no transaction may tear.
func (s *Server) serializable(t *table, key string) *record {
	if tx := s.running[lockKey{t, key}]; tx != nil && tx.decided {
		for i, a := range tx.actions {
			if a.table == t && a.key == key {
				return tx.after[i]
			}
		}
	}
	return t.base.shown[key]
}
