package dynamodb

import (
	"context"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// allocation is what was taken from a fence row for some records.
type allocation struct {
	last int64 // the last Seq
	// raised is the newest stamp that was set, and before what it was; before is
	// negative where it is not known.
	raised, before int64
}

// allocate gives records of one partition, in their order, their Seq and, where
// they have none, their stamp, and counts those that are about to be pending.
// It is one update of the fence row, by itself: what is never stored leaves a
// gap.
//
// The stamp is the clock, or the newest stamp of the partition where the clock is
// behind that: the update is conditional on it, so that of two calls that follow
// each other the second has the later stamp, whoever makes them.
func (s *Store) allocate(ctx context.Context, c call, p gobridge.Partition, rows []*row, counted int64) (allocation, error) {
	st := s.state(p)
	st.mu.Lock()
	at := max(nanos(s.now()), st.newest)
	st.mu.Unlock()
	explicit := make([]int64, len(rows))
	stamps, most := false, int64(0)
	for i, r := range rows {
		explicit[i] = nanos(r.CreatedAt)
		stamps = stamps || explicit[i] == 0
		most = max(most, explicit[i])
	}
	mode := raiseTo
	if !stamps {
		mode = raiseIfNewer
	}
	for {
		newest := max(at, most)
		if !stamps {
			newest = most
		}
		got, now, err := s.takeSeqs(ctx, c, p, takes{mode: mode, at: at, newest: newest, n: int64(len(rows)), pending: counted})
		if err != nil {
			return allocation{}, err
		}
		if got == nil {
			// The stamp of the partition is ahead of what was assumed.
			if mode == raiseTo {
				at = now.newest
			} else {
				mode = raiseNot
			}
			continue
		}
		s.ring(ctx, call{c.op, p})
		current := at
		for i, r := range rows {
			r.Seq = got.last - int64(len(rows)-1-i)
			if r.stamped = explicit[i] == 0; r.stamped {
				r.CreatedAt = timeOf(current)
			}
			current = max(current, explicit[i])
		}
		if mode != raiseNot {
			st.mu.Lock()
			st.newest = max(st.newest, newest)
			st.mu.Unlock()
		}
		return *got, nil
	}
}

// How an allocation treats the newest stamp.
type raising uint8

const (
	raiseTo      raising = iota // records are stamped with at, so it must not be behind
	raiseIfNewer                // all have ages of their own: raise it if they are newer
	raiseNot                    // they are not
)

type takes struct {
	mode       raising
	at, newest int64
	n, pending int64
}

// takeSeqs makes the update. Where its condition on the stamp does not hold, it
// returns no allocation but the fence row as it is.
func (s *Store) takeSeqs(ctx context.Context, c call, p gobridge.Partition, t takes) (*allocation, fence, error) {
	nonce := newNonce()
	values := item{":nonce": str(nonce), ":n": num(t.n)}
	update, condition := "SET #nonce = :nonce", "attribute_exists(#PK) AND #nonce <> :nonce"
	if t.mode != raiseNot {
		update += ", #newest_was = #newest, #newest = :newest"
		values[":newest"] = num(t.newest)
	}
	switch t.mode {
	case raiseTo:
		condition += " AND #newest <= :at"
		values[":at"] = num(t.at)
	case raiseIfNewer:
		condition += " AND #newest < :newest"
	}
	update += " ADD #seq_counter :n"
	if t.pending != 0 {
		update += ", #pending :pending"
		values[":pending"] = num(t.pending)
	}
	out, err := s.updateItem(ctx, c, &ddb.UpdateItemInput{
		Key: key(partitionKey(p), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: values,
		ReturnValues:                        types.ReturnValueUpdatedOld,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		old, err := parseFence(out.Attributes)
		got := &allocation{last: old.seq + t.n, raised: t.newest, before: old.newest}
		if t.mode == raiseNot {
			got.before = -1
		}
		return got, fence{}, err
	}
	it, refused := failedCondition(err)
	if !refused || len(it) == 0 {
		return nil, fence{}, err
	}
	now, err := parseFence(it)
	if err == nil && now.nonce == nonce { // it was done, and only the answer lost
		if t.mode == raiseNot {
			now.newestWas = -1
		}
		return &allocation{last: now.seq, raised: t.newest, before: now.newestWas}, fence{}, nil
	}
	return nil, now, err
}

// giveBack sets the figures right for records that were counted and then not
// stored, and the newest stamp where none was: as far as nobody has taken from
// the fence row since.
func (s *Store) giveBack(ctx context.Context, c call, p gobridge.Partition, a allocation, stored []*row, pending int64) {
	newest := a.before
	for _, r := range stored {
		newest = max(newest, nanos(r.CreatedAt))
	}
	d := delta{pending: -pending}
	if a.before < 0 || newest >= a.raised {
		s.count(ctx, c, p, d)
		return
	}
	nonce := newNonce()
	values := item{":nonce": str(nonce), ":last": num(a.last), ":raised": num(a.raised), ":newest": num(newest)}
	update := d.figures(values)
	update = "SET #newest = :newest, " + update[len("SET "):]
	condition := "#seq_counter = :last AND #newest = :raised"
	_, err := s.updateItem(context.WithoutCancel(ctx), c, &ddb.UpdateItemInput{
		Key: key(partitionKey(p), fenceSK), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: names(update, condition), ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	now, _ := failedCondition(err)
	if old := (parser{it: now}); err != nil && old.text("nonce") != nonce {
		s.count(ctx, c, p, d)
		return
	}
	st := s.state(p)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.newest == a.raised {
		st.newest = newest
	}
}
