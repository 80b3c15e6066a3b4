package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/messaging"
)

// Persist implements [gobridge.Outbox].
//
// The records of a call are given their ages a hundred at a time and then
// written, each envelope by itself: one record with a put, several with a
// transaction. Those of one key are written one after the other.
func (s *Store) Persist(ctx context.Context, records []gobridge.Record) error {
	if len(records) == 0 {
		return nil
	}
	c := call{op: "persist", partition: records[0].Partition}
	if err := ctx.Err(); err != nil {
		return fail(c.op, c.partition, err)
	}
	now := clean(s.now())
	if err := s.check(c, records, now); err != nil {
		return err
	}
	p := &persist{store: s, call: c, refused: map[string]error{}}
	for _, wave := range p.waves(records, now) {
		if p.err == nil {
			p.err = ctx.Err()
		}
		if p.err != nil {
			break
		}
		p.wave(ctx, wave)
	}
	s.announce(p.touched)
	return p.result(records)
}

// check returns what is wrong with a call, in which case nothing of it is stored.
func (s *Store) check(c call, records []gobridge.Record, now time.Time) error {
	type total struct {
		records int
		bytes   int64
	}
	totals := map[string]total{}
	for i := range records {
		r := &records[i]
		t := totals[r.Envelope.ID]
		t.records++
		t.bytes += int64(gobridge.EnvelopeSize(&r.Envelope))
		totals[r.Envelope.ID] = t
		err := limits.Check(r)
		switch ahead := r.CreatedAt.Sub(now); {
		case err != nil:
		case !r.CreatedAt.IsZero() && ahead > s.options.MaxSkew:
			err = &gobridge.FieldError{Field: "CreatedAt", Problem: fmt.Sprintf("is %s ahead of the store's clock; at most %s is taken",
				ahead, s.options.MaxSkew)}
		case t.records > limits.MaxBindings:
			err = &gobridge.FieldError{Field: "Binding", Problem: "records of one envelope",
				Size: int64(t.records), Limit: int64(limits.MaxBindings)}
		case t.bytes > limits.MaxCallBytes:
			err = &gobridge.FieldError{Field: "Envelope", Problem: "bytes in all its records", Size: t.bytes, Limit: limits.MaxCallBytes}
		}
		if err != nil {
			return &gobridge.Error{Op: c.op, Partition: r.Partition, Ref: r.Ref(), Err: err}
		}
	}
	return nil
}

// persist is a call on its way.
type persist struct {
	store *Store
	call  call

	mu      sync.Mutex
	refused map[string]error // envelopes that are not stored, by their IDs
	touched []gobridge.Partition
	err     error
}

// unit is the records of one envelope, which are stored all or none.
type unit struct {
	id   string
	rows []*row
	// stored are those that were new, once they are stored.
	stored []*row
	// open says that nobody knows whether they are.
	open bool
}

// lane is what has an order: a key in a partition.
type lane struct {
	partition gobridge.Partition
	key       string
}

func laneOf(r *row) lane { return lane{r.Partition, r.key()} }

// waves makes the units of a call and cuts them into groups that are given
// their ages together. A record names the earlier ones of its key in its own
// wave; those of earlier waves were stored before its age was given.
func (p *persist) waves(records []gobridge.Record, now time.Time) [][]*unit {
	var units []*unit
	byID := map[string]*unit{}
	hashes := map[gobridge.Ref]messaging.Hash{}
	for i := range records {
		r := newRow(&records[i], now)
		r.nonce = newNonce()
		if hash, twice := hashes[r.Ref()]; twice {
			if hash != r.ContentHash {
				p.refuse(r, gobridge.ErrIdentityReused)
			}
			continue
		}
		hashes[r.Ref()] = r.ContentHash
		u := byID[r.Envelope.ID]
		if u == nil {
			u = &unit{id: r.Envelope.ID}
			byID[u.id] = u
			units = append(units, u)
		}
		u.rows = append(u.rows, r)
	}
	var out [][]*unit
	var wave []*unit
	size, lanes := 0, map[lane]int{}
	for _, u := range units {
		if p.refused[u.id] != nil {
			continue
		}
		full := size > 0 && size+len(u.rows) > maxWave
		for _, r := range u.rows {
			full = full || r.key() != "" && lanes[laneOf(r)] >= maxLinks
		}
		if full {
			out = append(out, wave)
			wave, size, lanes = nil, 0, map[lane]int{}
		}
		wave = append(wave, u)
		size += len(u.rows)
		for _, r := range u.rows {
			lanes[laneOf(r)]++
		}
	}
	if len(wave) > 0 {
		out = append(out, wave)
	}
	return out
}

func (p *persist) refuse(r *row, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused[r.Envelope.ID] == nil {
		p.refused[r.Envelope.ID] = &gobridge.Error{Op: p.call.op, Partition: r.Partition, Ref: r.Ref(), Err: err}
	}
}

// share is what a partition has in a wave.
type share struct {
	partition gobridge.Partition
	rows      []*row
	pending   int64
	taken     allocation
	err       error
}

// shares sorts the records of units by their partitions.
func shares(units []*unit) []*share {
	var out []*share
	byName := map[gobridge.Partition]*share{}
	for _, u := range units {
		for _, r := range u.rows {
			sh := byName[r.Partition]
			if sh == nil {
				sh = &share{partition: r.Partition}
				byName[r.Partition] = sh
				out = append(out, sh)
			}
			sh.rows = append(sh.rows, r)
			if r.State == gobridge.StatePending {
				sh.pending++
			}
		}
	}
	return out
}

// wave stores some units.
func (p *persist) wave(ctx context.Context, units []*unit) {
	parts := shares(units)
	each(len(parts), func(i int) { p.take(ctx, parts[i], true) })
	for _, sh := range parts {
		p.err = errors.Join(p.err, sh.err)
	}
	if p.err == nil {
		for _, level := range levels(units) {
			each(len(level), func(i int) { p.put(ctx, level[i]) })
			if p.err != nil {
				break
			}
		}
	}
	p.settleFigures(ctx, units, parts)
}

// take gives the records of a share their ages and links.
func (p *persist) take(ctx context.Context, sh *share, counted bool) {
	c := call{op: p.call.op, partition: sh.partition}
	if sh.err = p.store.ensure(ctx, c, sh.partition); sh.err != nil {
		return
	}
	pending := sh.pending
	if !counted {
		pending = 0
	}
	if sh.taken, sh.err = p.store.allocate(ctx, c, sh.partition, sh.rows, pending); sh.err != nil {
		return
	}
	earlier := map[string][]string{}
	for _, r := range sh.rows {
		if k := r.key(); k != "" && r.State == gobridge.StatePending {
			r.after = slices.Clone(earlier[k])
			earlier[k] = append(earlier[k], r.sk)
		}
	}
}

// levels cuts units so that those of one key are in different levels, in their
// order.
func levels(units []*unit) [][]*unit {
	var out [][]*unit
	next := map[lane]int{}
	for _, u := range units {
		at := 0
		for _, r := range u.rows {
			if r.key() != "" {
				at = max(at, next[laneOf(r)])
			}
		}
		for _, r := range u.rows {
			next[laneOf(r)] = at + 1
		}
		if at == len(out) {
			out = append(out, nil)
		}
		out[at] = append(out[at], u)
	}
	return out
}

// put stores a unit.
func (p *persist) put(ctx context.Context, u *unit) {
	var err error
	if len(u.rows) == 1 && u.rows[0].State == gobridge.StatePending {
		err = p.putOne(ctx, u)
	} else {
		err = p.putAll(ctx, u)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range u.stored {
		p.touched = append(p.touched, r.Partition)
	}
	if err != nil {
		u.open = errors.Is(err, errOpen)
		p.err = errors.Join(p.err, &gobridge.Error{Op: p.call.op, Partition: u.rows[0].Partition, Ref: u.rows[0].Ref(), Err: err})
	}
}

const absent = "attribute_not_exists(#PK)"

func (p *persist) putOne(ctx context.Context, u *unit) error {
	r := u.rows[0]
	it, err := r.item()
	if err != nil {
		return err
	}
	_, err = p.store.putItem(ctx, call{p.call.op, r.Partition}, &ddb.PutItemInput{
		Item: it, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	old, refused := failedCondition(err)
	if err == nil || !refused {
		if err == nil {
			u.stored = u.rows
		}
		return err
	}
	return p.held(u, r, old)
}

// held decides what it means that there is a row already.
func (p *persist) held(u *unit, r *row, old item) error {
	if len(old) == 0 {
		return errNoOldRow
	}
	there, err := parseRow(old)
	switch {
	case err != nil:
		return err
	case there.Seq == r.Seq: // it was stored, and only the answer lost
		u.stored = append(u.stored, r)
	case there.ContentHash != r.ContentHash:
		p.refuse(r, gobridge.ErrIdentityReused)
	}
	return nil
}

var errNoOldRow = errors.New("DynamoDB refused a condition without returning the row that it was false of")

// putAll stores what is new of a unit in one transaction.
func (p *persist) putAll(ctx context.Context, u *unit) error {
	rows := u.rows
	for n := 0; ; n++ {
		items, err := p.puts(rows)
		if err != nil {
			return err
		}
		err = p.store.transact(ctx, call{p.call.op, rows[0].Partition}, items)
		if err == nil {
			u.stored = append(u.stored, rows...)
			return nil
		}
		var cancelled *types.TransactionCanceledException
		if !errors.As(err, &cancelled) {
			return err
		}
		left, retry, err := p.without(u, rows, cancelled)
		if err != nil || len(left) == 0 {
			return err
		}
		if p.isRefused(u) {
			return nil
		}
		if retry {
			if err := p.store.pause(ctx, n, cancelled); err != nil {
				return err
			}
		}
		rows = left
	}
}

func (p *persist) isRefused(u *unit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[u.id] != nil
}

// puts are the items of a unit's transaction: the records, and then, where some
// are dead letters, the fence rows that count those.
func (p *persist) puts(rows []*row) ([]types.TransactWriteItem, error) {
	var items []types.TransactWriteItem
	var order []gobridge.Partition
	dead := map[gobridge.Partition]delta{}
	for _, r := range rows {
		it, err := r.item()
		if err != nil {
			return nil, err
		}
		items = append(items, types.TransactWriteItem{Put: &types.Put{
			TableName: &p.store.table, Item: it, ConditionExpression: ptr(absent), ExpressionAttributeNames: names(absent),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}})
		if r.State == gobridge.StateDead {
			d, seen := dead[r.Partition]
			if !seen {
				order = append(order, r.Partition)
			}
			d.add(enters(r, gobridge.StateDead))
			dead[r.Partition] = d
		}
	}
	for _, name := range order {
		items = append(items, p.store.fenceUpdate(name, dead[name], 0))
	}
	return items, nil
}

// without returns the rows of a cancelled transaction that are still to be
// stored, and whether it was for nothing that they did. Refusals of the unit are
// noted.
func (p *persist) without(u *unit, rows []*row, cancelled *types.TransactionCanceledException) (left []*row, retry bool, err error) {
	for i, reason := range cancelled.CancellationReasons {
		code := ""
		if reason.Code != nil {
			code = *reason.Code
		}
		switch {
		case code == reasonCondition && i < len(rows):
			if err := p.held(u, rows[i], reason.Item); err != nil {
				return nil, false, err
			}
			continue
		case code == reasonCondition:
			for _, r := range rows {
				if r.State == gobridge.StateDead {
					p.refuse(r, gobridge.ErrDeadLettersFull)
					break
				}
			}
		case code == "" || code == "None":
		case code == reasonConflict || isThrottle(code):
			retry = true
		default:
			return nil, false, cancelled
		}
		if i < len(rows) {
			left = append(left, rows[i])
		}
	}
	return left, retry, nil
}

func isThrottle(code string) bool {
	return code == "ThrottlingError" || code == "ProvisionedThroughputExceeded"
}

// pause waits before a cancelled transaction is tried again.
func (s *Store) pause(ctx context.Context, n int, cause error) error {
	if n > 40 && !hasDeadline(ctx) {
		return cause
	}
	if err := s.sleep(ctx, backoff(n)); err != nil {
		return fmt.Errorf("%w; the last attempt: %w", err, cause)
	}
	return nil
}

// settleFigures takes back what was counted and then not stored.
func (p *persist) settleFigures(ctx context.Context, units []*unit, parts []*share) {
	stored := map[gobridge.Partition][]*row{}
	pending := map[gobridge.Partition]int64{}
	for _, u := range units {
		rows := u.stored
		if u.open {
			rows = u.rows
		}
		for _, r := range rows {
			stored[r.Partition] = append(stored[r.Partition], r)
			if r.State == gobridge.StatePending {
				pending[r.Partition]++
			}
		}
	}
	for _, sh := range parts {
		if sh.err == nil && len(stored[sh.partition]) < len(sh.rows) {
			c := call{op: p.call.op, partition: sh.partition}
			p.store.giveBack(ctx, c, sh.partition, sh.taken, stored[sh.partition], sh.pending-pending[sh.partition])
		}
	}
}

// result is the answer to the caller.
func (p *persist) result(records []gobridge.Record) error {
	if p.err != nil {
		return fail(p.call.op, p.call.partition, p.err)
	}
	var errs []error
	told := map[string]bool{}
	for i := range records {
		id := records[i].Envelope.ID
		if err := p.refused[id]; err != nil && !told[id] {
			told[id] = true
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) == 1:
		return errs[0]
	case len(errs) > 0:
		return errors.Join(errs...)
	case len(p.touched) == 0:
		return &gobridge.Error{Op: p.call.op, Partition: records[0].Partition, Ref: records[0].Ref(), Err: gobridge.ErrDuplicateRecord}
	}
	return nil
}
