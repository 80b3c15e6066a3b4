package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
)

// QueryDead implements [gobridge.DeadLetters].
func (s *Store) QueryDead(ctx context.Context, query gobridge.DeadQuery) (gobridge.DeadPage, error) {
	c := call{op: "query dead letters", partition: query.Filter.Partition}
	if err := ctx.Err(); err != nil {
		return gobridge.DeadPage{}, fail(c.op, c.partition, err)
	}
	found, cursor, err := s.page(ctx, c, &search{filter: &query.Filter, dead: true, effort: largestPage}, query.Limit, query.Cursor)
	if err != nil {
		return gobridge.DeadPage{}, fail(c.op, c.partition, err)
	}
	page := gobridge.DeadPage{Cursor: cursor}
	for _, r := range found {
		page.Records = append(page.Records, r.Record)
	}
	return page, nil
}

// Redrive implements [gobridge.DeadLetters].
func (s *Store) Redrive(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	c := call{op: "redrive", partition: request.Filter.Partition}
	now := clean(s.now())
	find := search{filter: &request.Filter, dead: true, effort: bulkEffort, except: func(r *row) bool { return r.Expired(now) }}
	return s.bulk(ctx, c, &request, &find, s.redrive)
}

// Discard implements [gobridge.DeadLetters].
func (s *Store) Discard(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	c := call{op: "discard", partition: request.Filter.Partition}
	find := search{filter: &request.Filter, effort: bulkEffort}
	for _, state := range request.Filter.States {
		switch state {
		case gobridge.StatePending:
			find.pending = true
		case gobridge.StateDead:
			find.dead = true
		default:
			return gobridge.BulkResult{}, fail(c.op, c.partition,
				fmt.Errorf("filter has state %s; pending and dead records can be discarded", state))
		}
	}
	if !find.pending && !find.dead {
		return gobridge.BulkResult{}, fail(c.op, c.partition, errors.New("filter has no states; name pending, dead or both"))
	}
	now := clean(s.now())
	return s.bulk(ctx, c, &request, &find, func(ctx context.Context, c call, rows []*row, n *note) ([]*row, error) {
		return s.endRows(ctx, &commit{call: c, note: n}, rows, gobridge.StateDiscarded, func() (string, item) {
			return s.ending(gobridge.StateDiscarded, now, request.Reason, nil)
		})
	})
}

// bulk does one page of a bulk request. Do changes the records of one partition
// and returns those that it changed.
func (s *Store) bulk(ctx context.Context, c call, request *gobridge.BulkRequest, find *search,
	do func(context.Context, call, []*row, *note) ([]*row, error)) (gobridge.BulkResult, error) {
	if err := ctx.Err(); err != nil {
		return gobridge.BulkResult{}, fail(c.op, c.partition, err)
	}
	found, cursor, err := s.page(ctx, c, find, request.Limit, request.Cursor)
	if err != nil {
		return gobridge.BulkResult{}, fail(c.op, c.partition, err)
	}
	result := gobridge.BulkResult{Cursor: cursor}
	var noted *note
	if len(found) > 0 && !request.DryRun {
		noted, err = s.newNote(ctx, c, gobridge.AuditEntry{
			At: clean(s.now()), Action: gobridge.AuditAction(c.op), Scope: request.Filter.Scope(), By: request.By, Reason: request.Reason,
		})
		if err != nil {
			return gobridge.BulkResult{}, fail(c.op, c.partition, err)
		}
	}
	var touched []gobridge.Partition
	defer func() { s.announce(touched) }()
	for len(found) > 0 {
		p, n := found[0].Partition, 1
		for n < len(found) && found[n].Partition == p {
			n++
		}
		changed, in := found[:n], call{c.op, p}
		found = found[n:]
		var gone map[*row]int
		if request.DryRun {
			gone, err = s.newerGone(ctx, in, changed)
		} else {
			changed, err = do(ctx, in, changed, noted)
			touched = append(touched, p)
		}
		for _, r := range changed {
			item := r.BulkItem()
			item.NewerGone = gone[r]
			result.Items = append(result.Items, item)
		}
		if err != nil {
			return gobridge.BulkResult{}, fail(c.op, p, err)
		}
	}
	return result, nil
}

// endRows ends records, or what has become of them is not any more what was
// read, and returns those that it ended.
func (s *Store) endRows(ctx context.Context, cm *commit, rows []*row, to gobridge.State, update func() (string, item)) ([]*row, error) {
	cm.patient, cm.nonce = true, newNonce()
	for _, r := range rows {
		ch := &change{row: r, to: to}
		ch.update, ch.values = update()
		ch.update += ", #settled"
		cm.changes = append(cm.changes, ch)
	}
	err := s.run(ctx, cm)
	return cm.made(), err
}

// redriveWave is how many records are redriven with one transaction, as far as
// their sizes allow. It bounds how many earlier ones of its key each names.
const redriveWave = maxLinks

// redrive takes dead records of one partition, in ascending age, back.
func (s *Store) redrive(ctx context.Context, c call, rows []*row, n *note) (changed []*row, err error) {
	for len(rows) > 0 {
		wave := rows[:min(len(rows), redriveWave)]
		done, left, err := s.redriveWave(ctx, c, wave, n)
		rows = slices.Concat(left, rows[len(wave):])
		changed = append(changed, done...)
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// redriveWave redrives what can be given its ages together. Of a key of which a
// record was lost, the later ones are left: another redrive may have taken it
// back under an age that is younger than theirs would be, so that they need new
// ones.
func (s *Store) redriveWave(ctx context.Context, c call, wave []*row, n *note) (changed, left []*row, err error) {
	fresh := make([]*row, len(wave))
	earlier := map[string][]string{}
	for i, r := range wave {
		again := *r
		again.CreatedAt = time.Time{}
		if k := r.key(); k != "" {
			again.after = append([]string(nil), earlier[k]...)
			earlier[k] = append(earlier[k], r.sk)
		}
		fresh[i] = &again
	}
	taken, err := s.allocate(ctx, c, c.partition, fresh, 0)
	if err != nil {
		return nil, nil, err
	}
	cm := &commit{call: c, keys: true, patient: true, nonce: newNonce(), note: n}
	for i, r := range wave {
		cm.changes = append(cm.changes, redriving(r, fresh[i]))
	}
	err = s.run(ctx, cm)
	var stored []*row
	for i, ch := range cm.changes {
		if ch.done {
			stored = append(stored, fresh[i])
		}
		if ch.behind {
			left = append(left, wave[i])
		}
	}
	if len(stored) == 0 && !errors.Is(err, errOpen) {
		s.giveBack(ctx, c, c.partition, taken, nil, 0)
	}
	return cm.made(), left, err
}

// redriving makes a dead record pending under a new age. What would purge it
// goes, and so does all that its former life had counted.
func redriving(r, fresh *row) *change {
	ch := &change{row: r, to: gobridge.StatePending, values: item{
		":state": str(gobridge.StatePending.String()), ":seq": num(fresh.Seq), ":created_at": num(nanos(fresh.CreatedAt)),
		":claim_sort": bin(claimSort(liveRange, fresh.age())), ":redrives": num(r.Redrives + 1),
	}}
	ch.update = "SET #state = :state, #seq = :seq, #created_at = :created_at, #claim_sort = :claim_sort, #redrives = :redrives, #nonce = :nonce"
	remove := " REMOVE #replay_count, #attempts, #unsettled, #retry_at, #ended_at, #owner, #version, #claimed_at, #settled, #ttl"
	if len(fresh.after) > 0 {
		ch.update += ", #after = :after"
		ch.values[":after"] = str(strings.Join(fresh.after, "\n"))
	} else {
		remove += ", #after"
	}
	ch.update += remove
	return ch
}

// newerGone counts for records the younger ones of their keys that have been
// delivered and are remembered. Those are in no index: the partition is read.
func (s *Store) newerGone(ctx context.Context, c call, rows []*row) (map[*row]int, error) {
	byKey := map[string][]*row{}
	for _, r := range rows {
		if k := r.key(); k != "" {
			byKey[k] = append(byKey[k], r)
		}
	}
	if len(byKey) == 0 {
		return nil, nil
	}
	filter, projection := "#state = :delivered AND attribute_exists(#ordering_key)", "#PK, #SK, #seq, #created_at, #ordering_key"
	out := map[*row]int{}
	err := s.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: ptr(allRecords), FilterExpression: &filter, ProjectionExpression: &projection,
		ExpressionAttributeNames: names(allRecords, filter, projection),
		ExpressionAttributeValues: item{
			":pk": str(partitionKey(c.partition)), ":records": str(recordPrefix), ":delivered": str(gobridge.StateDelivered.String()),
		},
		ConsistentRead: yes(),
	}, func(it item) (bool, error) {
		gone, err := parseRow(it)
		if err != nil {
			return false, err
		}
		for _, r := range byKey[gone.key()] {
			if r.age().before(gone.age()) {
				out[r]++
			}
		}
		return true, nil
	})
	return out, err
}
