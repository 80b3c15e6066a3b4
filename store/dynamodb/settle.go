package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// settlement is what one entry of a settling call asks for.
type settlement struct {
	ref    gobridge.Ref
	to     gobridge.State
	update string
	values item
}

// Complete implements [gobridge.Outbox].
func (s *Store) Complete(ctx context.Context, token gobridge.Token, completions []gobridge.Completion) error {
	const op = "complete"
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	now := clean(s.now())
	all := make([]settlement, len(completions))
	for i := range completions {
		c := &completions[i]
		switch c.As {
		case 0:
			all[i].to = gobridge.StateDelivered
		case gobridge.StateDelivered, gobridge.StateExpired, gobridge.StateDiscarded:
			all[i].to = c.As
		default:
			return &gobridge.Error{Op: op, Partition: c.Ref.Partition, Ref: c.Ref,
				Err: fmt.Errorf("a record is completed as delivered, expired or discarded, not as %s", c.As)}
		}
		all[i].ref = c.Ref
		all[i].update, all[i].values = s.ending(all[i].to, now, c.Reason, &c.Error)
		all[i].update = settled(all[i].update)
	}
	return s.settle(ctx, op, token, all)
}

// Release implements [gobridge.Outbox].
func (s *Store) Release(ctx context.Context, token gobridge.Token, releases []gobridge.Release) error {
	const op = "release"
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	all := make([]settlement, len(releases))
	for i := range releases {
		all[i] = releasing(&releases[i])
	}
	return s.settle(ctx, op, token, all)
}

func releasing(rel *gobridge.Release) settlement {
	values := item{":state": str(gobridge.StatePending.String())}
	update := "SET #state = :state, #nonce = :nonce, #settled = :yes"
	if rel.Tried == gobridge.Failed {
		update += ", #attempts = if_not_exists(#attempts, :zero) + :one"
		values[":zero"], values[":one"] = num(0), num(1)
	}
	if !rel.NotBefore.IsZero() {
		update += ", #retry_at = :retry_at"
		values[":retry_at"] = num(nanos(rel.NotBefore))
	}
	if rel.Reason != "" {
		update += ", #reason = :reason"
		values[":reason"] = text(cut(rel.Reason))
	}
	if rel.Error != "" {
		update += ", #error = :error"
		values[":error"] = text(cut(rel.Error))
	}
	return settlement{ref: rel.Ref, to: gobridge.StatePending, update: update + " REMOVE #unsettled", values: values}
}

// ending is the update that ends a record in a state that keeps no payload. A
// nil error text keeps what there is.
func (s *Store) ending(to gobridge.State, now time.Time, reason string, errText *string) (string, item) {
	values := item{
		":state": str(to.String()), ":ended_at": num(nanos(now)),
		// DynamoDB's own removal is for partitions that nobody owns any more.
		":ttl": num(now.Add(s.options.Retention + 24*time.Hour).Unix()),
	}
	update, remove := "SET #state = :state, #ended_at = :ended_at, #ttl = :ttl, #nonce = :nonce", " REMOVE "+stripped
	if reason != "" {
		update += ", #reason = :reason"
		values[":reason"] = text(cut(reason))
	} else {
		remove += ", #reason"
	}
	switch {
	case errText == nil:
	case *errText != "":
		update += ", #error = :error"
		values[":error"] = text(cut(*errText))
	default:
		remove += ", #error"
	}
	return update + remove, values
}

// settled has an update note that it was made by who had claimed the record.
func settled(update string) string { return "SET #settled = :yes, " + update[len("SET "):] }

// settleReach is how many records of a call are settled before the caller's
// context is looked at again.
const settleReach = 200

// settle makes settlements, each by itself, and then counts them. The reference
// of a record is its key in the table, so nothing is looked up.
func (s *Store) settle(ctx context.Context, op string, token gobridge.Token, all []settlement) error {
	if err := ctx.Err(); err != nil {
		return fail(op, "", err)
	}
	failed := make([]*gobridge.Error, len(all))
	var firstErr error
	var touched []gobridge.Partition
	for from := 0; from < len(all) && firstErr == nil; from += settleReach {
		if firstErr = ctx.Err(); firstErr != nil {
			break
		}
		part := all[from:min(from+settleReach, len(all))]
		var mu sync.Mutex
		figures := map[gobridge.Partition]delta{}
		each(len(part), func(i int) {
			d, err := s.settleOne(ctx, op, token, &part[i])
			mu.Lock()
			defer mu.Unlock()
			sum := figures[part[i].ref.Partition]
			sum.add(d)
			figures[part[i].ref.Partition] = sum
			if errors.Is(err, gobridge.ErrStaleFencingToken) {
				failed[from+i] = &gobridge.Error{Op: op, Partition: part[i].ref.Partition, Ref: part[i].ref, Err: err}
			} else if err != nil && firstErr == nil {
				firstErr = &gobridge.Error{Op: op, Partition: part[i].ref.Partition, Ref: part[i].ref, Err: err}
			}
		})
		for p, d := range figures {
			s.count(ctx, call{op, p}, p, d)
			if d.pending > 0 || d != (delta{}) && s.hasKeys(p) {
				touched = append(touched, p)
			}
		}
	}
	s.announce(touched)
	if firstErr != nil {
		return fail(op, "", firstErr)
	}
	return settleError(failed)
}

// hasKeys reports whether records of a partition that this handle claims from may
// have others waiting behind them. Who is told of one that ended without any pays for
// a claim that finds nothing.
func (s *Store) hasKeys(p gobridge.Partition) bool {
	st := s.state(p)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.keyed
}

// settleError is the error that names those that failed, nil if there are none.
func settleError(failed []*gobridge.Error) error {
	var named []*gobridge.Error
	for _, f := range failed {
		if f != nil {
			named = append(named, f)
		}
	}
	if len(named) == 0 {
		return nil
	}
	return &gobridge.SettleError{Failed: named}
}

const claimedByToken = "#state = :claimed AND #owner = :owner AND #version = :version"

// settleOne makes one settlement and returns what it adds to the figures.
func (s *Store) settleOne(ctx context.Context, op string, token gobridge.Token, one *settlement) (delta, error) {
	if !storable(one.ref) {
		return delta{}, gobridge.ErrStaleFencingToken
	}
	nonce := newNonce()
	values := item{
		":claimed": str(gobridge.StateClaimed.String()), ":owner": text(token.Owner), ":version": num(token.Version),
		":nonce": str(nonce), ":yes": num(1),
	}
	for name, v := range one.values {
		values[name] = v
	}
	_, err := s.updateItem(ctx, call{op, one.ref.Partition}, &ddb.UpdateItemInput{
		Key:              key(partitionKey(one.ref.Partition), recordKey(one.ref.EnvelopeID, one.ref.Binding)),
		UpdateExpression: &one.update, ConditionExpression: ptr(claimedByToken),
		ExpressionAttributeNames: names(one.update, claimedByToken), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	did := moves(&row{Record: gobridge.Record{State: gobridge.StateClaimed}}, one.to)
	old, refused := failedCondition(err)
	switch {
	case err == nil:
		return did, nil
	case !refused:
		return delta{}, err
	case len(old) == 0:
		return delta{}, gobridge.ErrStaleFencingToken
	}
	r, err := parseRow(old)
	switch {
	case err != nil:
		return delta{}, err
	case r.nonce == nonce: // this very call did it, and only an answer was lost
		return did, nil
	case settledBefore(r, token, one.to):
		return delta{}, nil
	}
	return delta{}, gobridge.ErrStaleFencingToken
}

// settledBefore reports whether the token's holder has settled the record in
// this way, as the last thing that happened to it.
func settledBefore(r *row, token gobridge.Token, to gobridge.State) bool {
	return r.settled && r.State == to && r.ClaimedBy == token
}

// storable reports whether a record of that identity can exist.
func storable(ref gobridge.Ref) bool {
	return ref.Partition != "" && ref.EnvelopeID != "" && ref.Binding != "" && len(ref.Partition) <= limits.MaxPartition &&
		len(ref.EnvelopeID) <= limits.MaxID && len(ref.Binding) <= limits.MaxBinding
}

// burialAttributes are what moving a record to the dead letters needs of it.
const burialAttributes = "#PK, #SK, #state, #seq, #created_at, #owner, #version, #nonce, #settled, #size, #attempts"

// DeadLetter implements [gobridge.Outbox]. Each record is moved by a transaction
// with the fence row, which counts the dead letters: they are one after the other.
func (s *Store) DeadLetter(ctx context.Context, token gobridge.Token, burials []gobridge.Burial) error {
	const op = "dead-letter"
	if !token.Valid() {
		return fail(op, "", gobridge.ErrInvalidToken)
	}
	failed := make([]*gobridge.Error, len(burials))
	var touched []gobridge.Partition
	defer func() { s.announce(touched) }()
	for i := range burials {
		b := &burials[i]
		err := ctx.Err()
		if err == nil {
			err = s.bury(ctx, call{op, b.Ref.Partition}, token, b)
		}
		e := &gobridge.Error{Op: op, Partition: b.Ref.Partition, Ref: b.Ref, Err: err}
		switch {
		case err == nil:
			if s.hasKeys(b.Ref.Partition) {
				touched = append(touched, b.Ref.Partition)
			}
		case errors.Is(err, gobridge.ErrStaleFencingToken):
			e.Err = gobridge.ErrStaleFencingToken
			failed[i] = e
		case errors.Is(err, gobridge.ErrDeadLettersFull):
			failed[i] = e
		default:
			return e
		}
	}
	if len(burials) == 0 {
		return fail(op, "", ctx.Err())
	}
	return settleError(failed)
}

func (s *Store) bury(ctx context.Context, c call, token gobridge.Token, b *gobridge.Burial) error {
	if !storable(b.Ref) {
		return gobridge.ErrStaleFencingToken
	}
	now := clean(s.now())
	pk, sk := partitionKey(b.Ref.Partition), recordKey(b.Ref.EnvelopeID, b.Ref.Binding)
	nonce := newNonce()
	for {
		got, err := s.getRows(ctx, c, pk, []string{sk}, burialAttributes)
		if err != nil {
			return err
		}
		r := got[sk]
		switch {
		case r == nil:
			return gobridge.ErrStaleFencingToken
		case r.nonce == nonce || settledBefore(r, token, gobridge.StateDead):
			return nil
		case r.State != gobridge.StateClaimed || r.ClaimedBy != token:
			return gobridge.ErrStaleFencingToken
		}
		cm := &commit{call: c, nonce: nonce, changes: []*change{s.burying(r, now, b)}}
		if err := s.run(ctx, cm); err != nil || cm.changes[0].done {
			return err
		}
	}
}

func (s *Store) burying(r *row, now time.Time, b *gobridge.Burial) *change {
	ch := dying(r, now, b.Reason, b.Error)
	ch.update = settled(ch.update)
	ch.values[":yes"] = num(1)
	if b.Tried == gobridge.Failed {
		ch.update = "SET #attempts = :attempts, " + ch.update[len("SET "):]
		ch.values[":attempts"] = num(r.Attempts + 1)
	}
	return ch
}

// dying makes a record a dead letter.
func dying(r *row, now time.Time, reason, errText string) *change {
	ch := &change{row: r, to: gobridge.StateDead, values: item{
		":state": str(gobridge.StateDead.String()), ":ended_at": num(nanos(now)),
		":claim_sort": bin(claimSort(deadRange, r.age())),
	}}
	ch.update = "SET #state = :state, #ended_at = :ended_at, #claim_sort = :claim_sort, #nonce = :nonce"
	remove := " REMOVE #unsettled"
	for _, t := range [...]struct{ name, value string }{{"reason", reason}, {"error", errText}} {
		if t.value != "" {
			ch.update += ", #" + t.name + " = :" + t.name
			ch.values[":"+t.name] = text(cut(t.value))
		} else {
			remove += ", #" + t.name
		}
	}
	ch.update += remove
	return ch
}
