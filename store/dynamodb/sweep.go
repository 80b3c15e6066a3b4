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

const (
	// sweepPages is how many pages a sweep reads at most.
	sweepPages = 16
	// pagePace is how long a pass over a partition rests for each page but the
	// first that it has read. Ended rows are in no index, so a sweep reads the
	// partition; resting, it takes at most 26 read units per second of it.
	pagePace = 10 * time.Second
	// quietTime is how long a partition's fence row must not have changed before
	// figures that differ from what is there are put right: whoever has counted
	// and not yet written, or the other way round, is gone by then.
	quietTime = time.Minute
)

// pass is a walk over a partition, in as many sweeps as it takes.
type pass struct {
	next  item // where it goes on, nil at the start
	pages int
	// Since the start: the fence row's nonce, and what was counted.
	nonce            string
	pending, claimed int64

	// Of the last whole pass.
	lastPages int
	lastEnd   time.Time
	// Figures that were off, and since when they and the fence row are the same.
	suspect string
	since   time.Time
}

// What a sweep reads of a record.
const sweepAttributes = "#PK, #SK, #state, #seq, #created_at, #ordering_key, #version, #expires_at, #retry_at, #ended_at, #nonce, #size"

// Sweep implements [gobridge.Outbox].
func (s *Store) Sweep(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
	c := call{op: "sweep", partition: request.Partition}
	if !request.Token.Valid() {
		return gobridge.SweepResult{}, fail(c.op, c.partition, gobridge.ErrInvalidToken)
	}
	switch request.ExpireTo {
	case 0, gobridge.StateExpired, gobridge.StateDead:
	default:
		return gobridge.SweepResult{}, fail(c.op, c.partition,
			fmt.Errorf("expired records go to expired or dead, not to %s", request.ExpireTo))
	}
	err := ctx.Err()
	if err == nil {
		err = checkPartition(request.Partition)
	}
	var f fence
	if err == nil {
		f, err = s.raise(ctx, c, request.Token)
	}
	if err != nil || request.Limit <= 0 {
		return gobridge.SweepResult{}, fail(c.op, c.partition, err)
	}
	sw := &sweep{store: s, call: c, request: &request, now: clean(s.now()), state: s.state(c.partition)}
	if err := sw.look(ctx, &f); err != nil {
		return gobridge.SweepResult{}, fail(c.op, c.partition, err)
	}
	if err := sw.act(ctx); err != nil {
		return gobridge.SweepResult{}, fail(c.op, c.partition, err)
	}
	if sw.result.Expired > 0 {
		s.announce([]gobridge.Partition{c.partition})
	}
	return sw.result, nil
}

// sweep is a sweep on its way.
type sweep struct {
	store   *Store
	call    call
	request *gobridge.SweepRequest
	now     time.Time
	state   *state

	expired, far, ended, aged []*row
	result                    gobridge.SweepResult
}

// look reads on in the partition, until there is enough to do.
func (sw *sweep) look(ctx context.Context, f *fence) error {
	sw.state.mu.Lock()
	p := sw.state.sweep
	sw.state.mu.Unlock()
	rested := sw.now.Sub(p.lastEnd)
	if p.next == nil && 0 <= rested && rested < time.Duration(p.lastPages-1)*sw.store.pace {
		return nil
	}
	resumed := p.next != nil
	if !resumed {
		p.begin(f)
	}
	for range sweepPages {
		page, err := sw.page(ctx, p.next)
		if err != nil {
			return err
		}
		p.pages++
		full, err := sw.sort(page.Items, &p)
		if err != nil {
			return err
		}
		if full || len(page.LastEvaluatedKey) > 0 {
			if !full {
				p.next = page.LastEvaluatedKey
			}
			if sw.result.More = true; full {
				break
			}
			continue
		}
		sw.result.More = false
		if err := sw.end(ctx, f, &p); err != nil {
			return err
		}
		if resumed && p.lastPages <= 2 {
			// What it had passed before this sweep may have come due since.
			resumed = false
			p.begin(f)
			continue
		}
		break
	}
	sw.state.mu.Lock()
	sw.state.sweep = p
	sw.state.mu.Unlock()
	return nil
}

func (p *pass) begin(f *fence) {
	*p = pass{nonce: f.nonce, lastPages: p.lastPages, lastEnd: p.lastEnd, suspect: p.suspect, since: p.since}
}

func (sw *sweep) page(ctx context.Context, from item) (*ddb.QueryOutput, error) {
	return sw.store.query(ctx, sw.call, &ddb.QueryInput{
		KeyConditionExpression: ptr(allRecords), ProjectionExpression: ptr(sweepAttributes),
		ExpressionAttributeNames:  names(allRecords, sweepAttributes),
		ExpressionAttributeValues: item{":pk": str(partitionKey(sw.call.partition)), ":records": str(recordPrefix)},
		ConsistentRead:            yes(), ExclusiveStartKey: from,
	})
}

// sort finds what is to be done about the rows of a page. Full says that it
// stopped before one for which there was no room; the pass goes on with that.
func (sw *sweep) sort(items []item, p *pass) (full bool, err error) {
	o := &sw.store.options
	for _, it := range items {
		r, err := parseRow(it)
		if err != nil {
			return false, err
		}
		var list *[]*row
		switch {
		case r.State == gobridge.StatePending && r.Expired(sw.now):
			list = &sw.expired
		case r.State == gobridge.StatePending && sw.request.MaxBackoff > 0 && r.RetryAt.After(sw.now.Add(sw.request.MaxBackoff)):
			list = &sw.far
		case r.State == gobridge.StateDead && !sw.now.Before(r.EndedAt.Add(o.DeadRetention)):
			list = &sw.aged
		case r.State != gobridge.StateDead && r.State.Ended() && !sw.now.Before(r.EndedAt.Add(o.Retention)):
			list = &sw.ended
		}
		if list != nil {
			if len(*list) == sw.request.Limit {
				return true, nil
			}
			*list = append(*list, r)
		}
		switch r.State {
		case gobridge.StatePending:
			p.pending++
		case gobridge.StateClaimed:
			p.claimed++
		}
		p.next = key(r.pk, r.sk)
	}
	return false, nil
}

// end closes a pass. If it counted other figures than the fence row has, and
// nothing has changed for a while, the fence row is put right.
func (sw *sweep) end(ctx context.Context, f *fence, p *pass) error {
	p.next, p.lastPages, p.lastEnd = nil, p.pages, sw.now
	if p.nonce != f.nonce || p.pending == f.pending && p.claimed == f.claimed {
		p.suspect = ""
		return nil
	}
	if p.suspect != f.nonce {
		p.suspect, p.since = f.nonce, sw.now
		return nil
	}
	if sw.now.Sub(p.since) < quietTime {
		return nil
	}
	update, condition := "SET #pending = :pending, #claimed = :claimed, #nonce = :nonce", "#nonce = :was"
	_, err := sw.store.updateItem(ctx, sw.call, &ddb.UpdateItemInput{
		Key: key(partitionKey(sw.call.partition), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: item{
			":pending": num(p.pending), ":claimed": num(p.claimed), ":nonce": str(newNonce()), ":was": str(f.nonce),
		},
	})
	if _, changed := failedCondition(err); changed {
		return nil
	}
	if err == nil {
		sw.store.log.InfoContext(ctx, "figures counted anew", "partition", string(sw.call.partition),
			"pending", p.pending, "pending_was", f.pending, "claimed", p.claimed, "claimed_was", f.claimed)
	}
	return err
}

// act does what was found to do.
func (sw *sweep) act(ctx context.Context) error {
	s, version := sw.store, sw.request.Token.Version
	var done []*row
	var err error
	if sw.request.ExpireTo == gobridge.StateDead {
		sw.result.Expired, err = sw.buryExpired(ctx)
	} else {
		done, err = s.endRows(ctx, &commit{call: sw.call, version: version}, sw.expired, gobridge.StateExpired, func() (string, item) {
			return s.ending(gobridge.StateExpired, sw.now, gobridge.ReasonExpired, ptr(""))
		})
		sw.result.Expired = len(done)
	}
	if err != nil {
		return err
	}
	if sw.result.Clamped, err = s.setRetryAt(ctx, sw.call, sw.far, sw.now.Add(sw.request.MaxBackoff)); err != nil {
		return err
	}
	if sw.result.Purged, err = s.purge(ctx, sw.call, sw.ended); err != nil {
		return err
	}
	done, err = s.endRows(ctx, &commit{call: sw.call, version: version}, sw.aged, gobridge.StateDiscarded, func() (string, item) {
		return s.ending(gobridge.StateDiscarded, sw.now, gobridge.ReasonAged, nil)
	})
	sw.result.Aged = len(done)
	return err
}

// buryExpired makes expired records dead letters, as many as there is room for.
func (sw *sweep) buryExpired(ctx context.Context) (n int, err error) {
	try := func(rows []*row) error {
		cm := &commit{call: sw.call, version: sw.request.Token.Version, patient: true, nonce: newNonce()}
		for _, r := range rows {
			ch := dying(r, sw.now, gobridge.ReasonExpired, "")
			ch.update += ", #settled"
			cm.changes = append(cm.changes, ch)
		}
		err := sw.store.run(ctx, cm)
		n += len(cm.made())
		return err
	}
	if len(sw.expired) == 0 {
		return 0, nil
	}
	err = try(sw.expired)
	if !errors.Is(err, gobridge.ErrDeadLettersFull) {
		return n, err
	}
	for _, r := range sw.expired[n:] {
		if err = try([]*row{r}); err != nil {
			break
		}
	}
	if errors.Is(err, gobridge.ErrDeadLettersFull) {
		err = nil // the others wait where they are
	}
	return n, err
}

// purge removes rows that are as they were read, and returns how many were.
func (s *Store) purge(ctx context.Context, c call, rows []*row) (int, error) {
	var mu sync.Mutex
	var firstErr error
	n := 0
	each(len(rows), func(i int) {
		_, err := s.deleteItem(ctx, c, &ddb.DeleteItemInput{
			Key: key(rows[i].pk, rows[i].sk), ConditionExpression: ptr(unchanged), ExpressionAttributeNames: names(unchanged),
			ExpressionAttributeValues:           item{":was": str(rows[i].nonce)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		old, changed := failedCondition(err)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil, changed && len(old) == 0: // gone: it may be that the answer was lost
			n++
		case !changed && firstErr == nil:
			firstErr = err
		}
	})
	return n, firstErr
}
