package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// Controls are rows under one partition key, with a row that counts their
// changes. A claim reads that count, strongly consistent, beside the fence row,
// and reads the controls anew when it has changed.

// scope is what makes two controls the same.
type scope struct {
	kind                            gobridge.ControlKind
	route, binding, key, envelopeID string
}

func scopeOf(c *gobridge.Control) scope {
	return scope{c.Kind, c.Route, c.Binding, c.OrderingKey, c.EnvelopeID}
}

// sk is the sort key. A key that is escaped may be too long for one.
func (s scope) sk() string {
	out := controlPref
	for i, part := range [...]string{string(s.kind), s.route, s.binding, s.key, s.envelopeID} {
		if i > 0 {
			out += "#"
		}
		out += escape(part)
	}
	if len(out) > 1024 {
		out = out[:len(controlPref)] + digest(out)
	}
	return out
}

// SetControl implements [gobridge.Controls].
func (s *Store) SetControl(ctx context.Context, control gobridge.Control) error {
	c := call{op: "set control"}
	if err := ctx.Err(); err != nil {
		return fail(c.op, "", err)
	}
	if err := control.Check(); err != nil {
		return fail(c.op, "", err)
	}
	since := clean(control.Since)
	if since.IsZero() {
		since = clean(s.now())
	}
	update := "SET #since = if_not_exists(#since, :since), #by = if_not_exists(#by, :by), #reason = :reason, #kind = :kind, " +
		"#route = :route, #binding = :binding, #ordering_key = :ordering_key, #envelope_id = :envelope_id"
	values := item{
		":since": num(nanos(since)), ":by": text(control.By), ":reason": text(control.Reason), ":kind": str(string(control.Kind)),
		":route": text(control.Route), ":binding": text(control.Binding),
		":ordering_key": text(control.OrderingKey), ":envelope_id": text(control.EnvelopeID),
	}
	entry := gobridge.AuditSet(&control, clean(s.now()))
	return fail(c.op, "", s.changeControls(ctx, c, entry, types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: key(controlsPK, scopeOf(&control).sk()), UpdateExpression: &update,
		ExpressionAttributeNames: names(update), ExpressionAttributeValues: values,
	}}))
}

// ClearControl implements [gobridge.Controls].
func (s *Store) ClearControl(ctx context.Context, control gobridge.Control) error {
	c := call{op: "clear control"}
	if err := ctx.Err(); err != nil {
		return fail(c.op, "", err)
	}
	exists := "attribute_exists(#PK)"
	entry := gobridge.AuditCleared(&control, clean(s.now()))
	err := s.changeControls(ctx, c, entry, types.TransactWriteItem{Delete: &types.Delete{
		TableName: &s.table, Key: key(controlsPK, scopeOf(&control).sk()),
		ConditionExpression: &exists, ExpressionAttributeNames: names(exists),
	}})
	if err != nil {
		return fail(c.op, "", err)
	}
	s.announce([]gobridge.Partition{""})
	return nil
}

// changeControls makes a change, counts it and notes it, in one transaction.
func (s *Store) changeControls(ctx context.Context, c call, entry gobridge.AuditEntry, change types.TransactWriteItem) error {
	noted, err := s.newNote(ctx, c, entry)
	if err != nil {
		return err
	}
	update := "ADD #revision :one"
	count := types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: key(controlsPK, revisionSK), UpdateExpression: &update,
		ExpressionAttributeNames: names(update), ExpressionAttributeValues: item{":one": num(1)},
	}}
	for n := 0; ; n++ {
		err := s.transact(ctx, c, []types.TransactWriteItem{change, count, noted.write(s, 0)})
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return err
		}
		if len(cancelled.CancellationReasons) > 0 && aws.ToString(cancelled.CancellationReasons[0].Code) == reasonCondition {
			return gobridge.ErrNotFound
		}
		if err := s.pause(ctx, n, cancelled); err != nil {
			return err
		}
	}
}

// ListControls implements [gobridge.Controls].
func (s *Store) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	c := call{op: "list controls"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	out, err := s.readControls(ctx, c)
	return out, fail(c.op, "", err)
}

func (s *Store) readControls(ctx context.Context, c call) ([]gobridge.Control, error) {
	condition := "#PK = :pk AND begins_with(#SK, :controls)"
	var out []gobridge.Control
	err := s.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: &condition, ExpressionAttributeNames: names(condition),
		ExpressionAttributeValues: item{":pk": str(controlsPK), ":controls": str(controlPref)}, ConsistentRead: yes(),
	}, func(it item) (bool, error) {
		p := parser{it: it}
		out = append(out, gobridge.Control{
			Kind: gobridge.ControlKind(p.text("kind")), Route: p.text("route"), Binding: p.text("binding"),
			OrderingKey: p.text("ordering_key"), EnvelopeID: p.text("envelope_id"),
			Since: p.time("since"), By: p.text("by"), Reason: p.text("reason"),
		})
		return true, p.err
	})
	slices.SortFunc(out, func(a, b gobridge.Control) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Route, b.Route),
			cmp.Compare(a.Binding, b.Binding), cmp.Compare(a.OrderingKey, b.OrderingKey), cmp.Compare(a.EnvelopeID, b.EnvelopeID))
	})
	return out, err
}

// controlSet are the controls in force, to be asked.
type controlSet struct{ byScope map[scope]gobridge.Control }

// controlCache keeps the controls as of a revision.
type controlCache struct {
	mu       sync.Mutex
	revision int64
	set      *controlSet
}

// controlsAt returns the controls, which are at a revision or a newer one.
func (s *Store) controlsAt(ctx context.Context, c call, revision int64) (*controlSet, error) {
	if revision == 0 { // there has never been one
		return &controlSet{}, nil
	}
	cache := &s.controls
	cache.mu.Lock()
	set, at := cache.set, cache.revision
	cache.mu.Unlock()
	if set != nil && at == revision {
		return set, nil
	}
	all, err := s.readControls(ctx, c)
	if err != nil {
		return nil, err
	}
	set = &controlSet{byScope: map[scope]gobridge.Control{}}
	for i := range all {
		set.byScope[scopeOf(&all[i])] = all[i]
	}
	cache.mu.Lock()
	cache.set, cache.revision = set, revision
	cache.mu.Unlock()
	return set, nil
}

// pause returns the control that pauses a binding, nil if none does.
func (s *controlSet) pause(route, binding string) *gobridge.Control {
	for _, b := range [...]string{"", binding} {
		if c, ok := s.byScope[scope{kind: gobridge.Pause, route: route, binding: b}]; ok {
			return &c
		}
	}
	return nil
}

// halt returns the control that halts a record or its key, nil if none does.
func (s *controlSet) halt(route, binding string, r *row) *gobridge.Control {
	if len(s.byScope) == 0 {
		return nil
	}
	at := scope{kind: gobridge.Halt, route: route, binding: binding, key: r.key()}
	if at.key == "" {
		at.envelopeID = r.Envelope.ID
	}
	if c, ok := s.byScope[at]; ok {
		return &c
	}
	return nil
}

// retryLimit is how many records a Retry takes.
const retryLimit = 1000

// Retry implements [gobridge.Controls]. Its audit entry is written before it
// changes anything, and counts up when it has.
func (s *Store) Retry(ctx context.Context, request gobridge.RetryRequest) (int, error) {
	filter := &request.Filter
	c := call{op: "retry", partition: filter.Partition}
	if err := ctx.Err(); err != nil {
		return 0, fail(c.op, c.partition, err)
	}
	noted, err := s.newNote(ctx, c, gobridge.AuditEntry{
		At: clean(s.now()), Action: gobridge.AuditRetry, Scope: filter.Scope(), By: request.By, Reason: request.Reason,
	})
	if err == nil {
		err = noted.put(ctx, s, c, 0)
	}
	var partitions []gobridge.Partition
	if err == nil {
		partitions, err = s.partitionsOf(ctx, c, filter, "")
	}
	total := 0
	for _, p := range partitions {
		if err != nil {
			break
		}
		if _, binding, _, _ := p.Split(); filter.Binding != "" && filter.Binding != binding {
			continue
		}
		var n int
		n, err = s.retryIn(ctx, call{c.op, p}, filter, retryLimit-total)
		total += n
	}
	if err == nil && total > 0 {
		err = noted.put(ctx, s, c, int64(total))
	}
	s.announce(partitions)
	return total, fail(c.op, c.partition, err)
}

// retryIn does it in one partition: its owner is told, and up to limit records
// are made due.
func (s *Store) retryIn(ctx context.Context, c call, filter *gobridge.Filter, limit int) (int, error) {
	update, condition := "ADD #retries :one", "attribute_exists(#PK)"
	_, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: key(partitionKey(c.partition), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: item{":one": num(1)},
	})
	if _, unknown := failedCondition(err); unknown || err == nil && limit == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	now := clean(s.now())
	waiting := func(r *row) bool { return r.State == gobridge.StatePending && r.RetryAt.After(now) }
	found, _, err := s.searchRange(ctx, c, rangeSearch{
		in: liveRange, limit: limit, effort: retryEffort, likely: waiting,
		matches: func(r *row) bool { return waiting(r) && matches(filter, r) },
	})
	if err != nil {
		return 0, err
	}
	return s.setRetryAt(ctx, c, found, time.Time{})
}

// setRetryAt changes the due times of records that are as they were read, and
// returns how many were.
func (s *Store) setRetryAt(ctx context.Context, c call, rows []*row, at time.Time) (int, error) {
	update := "SET #nonce = :nonce REMOVE #retry_at"
	if !at.IsZero() {
		update = "SET #nonce = :nonce, #retry_at = :retry_at"
	}
	var mu sync.Mutex
	var firstErr error
	n := 0
	each(len(rows), func(i int) {
		nonce := newNonce()
		values := item{":was": str(rows[i].nonce), ":nonce": str(nonce)}
		if !at.IsZero() {
			values[":retry_at"] = num(nanos(at))
		}
		_, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
			Key: key(rows[i].pk, rows[i].sk), UpdateExpression: &update, ConditionExpression: ptr(unchanged),
			ExpressionAttributeNames: names(update, unchanged), ExpressionAttributeValues: values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		old, refused := failedCondition(err)
		mu.Lock()
		defer mu.Unlock()
		switch p := (parser{it: old}); {
		case err == nil, refused && p.text("nonce") == nonce:
			n++
		case !refused && firstErr == nil:
			firstErr = err
		}
	})
	return n, firstErr
}
