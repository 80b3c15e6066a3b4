package dynamodb

import (
	"context"
	"slices"
	"sync"
	"time"

	"gobridge"
)

// QueryPending implements [gobridge.Outbox]. It returns the oldest that the
// index shows.
func (s *Store) QueryPending(ctx context.Context, partition gobridge.Partition, limit int) ([]gobridge.Record, error) {
	c := call{op: "query pending", partition: partition}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, partition, err)
	}
	if limit <= 0 || unheardOf(partition) {
		return nil, nil
	}
	found, _, err := s.searchRange(ctx, c, rangeSearch{in: liveRange, limit: limit, effort: 10 * max(limit, defaultPage),
		matches: func(r *row) bool { return r.State == gobridge.StatePending }})
	if err != nil {
		return nil, fail(c.op, partition, err)
	}
	out := make([]gobridge.Record, len(found))
	for i, r := range found {
		out[i] = r.Record
	}
	return out, nil
}

// CountPending implements [gobridge.Outbox]. It reads one row.
func (s *Store) CountPending(ctx context.Context, partition gobridge.Partition, limit int) (int, error) {
	c := call{op: "count pending", partition: partition}
	if err := ctx.Err(); err != nil {
		return 0, fail(c.op, partition, err)
	}
	if unheardOf(partition) {
		return 0, nil
	}
	f, _, err := s.readFence(ctx, c, partition)
	if err != nil {
		return 0, fail(c.op, partition, err)
	}
	return int(min(max(f.pending, 0), int64(max(limit, 0)))), nil
}

// Stats implements [gobridge.Inspector]. It reads the fence rows, and for the
// oldest pending record, when it may have changed, the front of the index.
func (s *Store) Stats(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
	c := call{op: "stats"}
	if err := ctx.Err(); err != nil {
		return nil, fail(c.op, "", err)
	}
	if len(partitions) == 0 {
		var err error
		if partitions, err = s.partitions(ctx, c); err != nil {
			return nil, fail(c.op, "", err)
		}
	}
	all := slices.Compact(slices.Sorted(slices.Values(partitions)))
	out := make([]gobridge.Stats, len(all))
	var keys []item
	at := map[string]int{}
	for i, p := range all {
		out[i].Partition = p
		if !unheardOf(p) {
			keys = append(keys, key(partitionKey(p), fenceSK), key(partitionKey(p), conditionSK))
			at[partitionKey(p)] = i
		}
	}
	rows, err := s.batchGet(ctx, c, keys, "")
	var mu sync.Mutex
	each(len(rows), func(i int) {
		p := parser{it: rows[i]}
		n := at[p.text(attrPK)]
		oneErr := s.stats(ctx, call{c.op, all[n]}, rows[i], &out[n])
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			err = oneErr
		}
	})
	if err != nil {
		return nil, fail(c.op, "", err)
	}
	return out, nil
}

func (s *Store) stats(ctx context.Context, c call, it item, out *gobridge.Stats) (err error) {
	if p := (parser{it: it}); p.text(attrSK) == conditionSK {
		out.Condition, err = parseCondition(it)
		return err
	}
	f, err := parseFence(it)
	if err != nil {
		return err
	}
	out.Pending, out.Claimed, out.Dead, out.DeadBytes = max(f.pending, 0), max(f.claimed, 0), max(f.dead, 0), max(f.deadBytes, 0)
	out.Fence, out.LastSeq, out.NewestStamp = f.token, f.seq, timeOf(f.newest)
	out.Retries = f.retries
	if f.pending > 0 {
		out.OldestPending, err = s.oldestPending(ctx, c, &f)
	}
	return err
}

// oldestPending is what a handle last found out about a partition.
type oldestPending struct {
	nonce  string // the fence row's
	at     time.Time
	looked time.Time
}

// oldestPending returns the StoredAt of the oldest pending record. Between it
// and the front of the index stand the records that are claimed.
func (s *Store) oldestPending(ctx context.Context, c call, f *fence) (time.Time, error) {
	st := s.state(c.partition)
	st.mu.Lock()
	known := st.oldest
	st.mu.Unlock()
	young := s.options.OldestPendingAge > 0 && time.Since(known.looked) < s.options.OldestPendingAge
	if known.nonce == f.nonce || young && !known.at.IsZero() {
		return known.at, nil
	}
	found, _, err := s.searchRange(ctx, c, rangeSearch{in: liveRange, limit: 1, effort: bulkEffort,
		matches: func(r *row) bool { return r.State == gobridge.StatePending }})
	if err != nil || len(found) == 0 {
		return time.Time{}, err
	}
	st.mu.Lock()
	st.oldest = oldestPending{nonce: f.nonce, at: found[0].StoredAt, looked: time.Now()}
	st.mu.Unlock()
	return found[0].StoredAt, nil
}

// Get implements [gobridge.Inspector].
func (s *Store) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	c := call{op: "get", partition: ref.Partition}
	if err := ctx.Err(); err != nil {
		return gobridge.Record{}, fail(c.op, c.partition, err)
	}
	r, err := s.getRow(ctx, c, ref)
	if err == nil && r == nil {
		err = gobridge.ErrNotFound
	}
	if err != nil {
		return gobridge.Record{}, &gobridge.Error{Op: c.op, Partition: ref.Partition, Ref: ref, Err: err}
	}
	return r.Record, nil
}
