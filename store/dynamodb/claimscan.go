package dynamodb

import (
	"context"
	"errors"
	"slices"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
)

// deepBacklogPageWarn is how many pages a claim reads before it says so.
const deepBacklogPageWarn = 20

// scanPasses bounds how often a claim reads the partition to fill its batch, and
// emptyPasses how often to find anything at all.
const (
	scanPasses  = 2
	emptyPasses = 8
)

// What a claim reads of each record when it selects.
const (
	selectAttributes = "#PK, #SK, #state, #seq, #created_at, #ordering_key, #not_before, #retry_at, #version, #claimed_at, #size, #after"
	selectFilter     = "#state IN (:pending, :claimed)"
	allRecords       = "#PK = :pk AND begins_with(#SK, :records)"
)

// fromPartition selects from the partition itself, read strongly consistent
// from end to end.
func (cl *claim) fromPartition(ctx context.Context) ([]*row, error) {
	sel := newSelection(max(cl.store.options.ClaimRetentionFactor, 1) * cl.request.Limit)
	for pass := 1; ; pass++ {
		if err := cl.scan(ctx, sel); err != nil {
			return nil, err
		}
		picked, short := sel.pick(cl.request.Limit, cl.request.MaxBytes)
		if short && (pass < scanPasses || len(picked) == 0 && pass < emptyPasses) {
			sel = sel.again()
			continue
		}
		picked, err := cl.withoutHidden(ctx, picked)
		if err != nil || len(picked) == 0 {
			return nil, err
		}
		return cl.fetch(ctx, picked)
	}
}

// scan reads the partition once.
func (cl *claim) scan(ctx context.Context, sel *selection) error {
	s := cl.store
	in := &ddb.QueryInput{
		KeyConditionExpression: ptr(allRecords), FilterExpression: ptr(selectFilter), ProjectionExpression: ptr(selectAttributes),
		ExpressionAttributeNames: names(allRecords, selectFilter, selectAttributes),
		ExpressionAttributeValues: item{
			":pk": str(cl.pk), ":records": str(recordPrefix),
			":pending": str(gobridge.StatePending.String()), ":claimed": str(gobridge.StateClaimed.String()),
		},
		ConsistentRead: yes(),
	}
	keyed := false
	for pages := 1; ; pages++ {
		page, err := s.query(ctx, cl.call, in)
		if err != nil {
			return err
		}
		s.observe(Event{Metric: DynamoDBOutboxClaimScanPages, Partition: cl.call.partition, Operation: cl.call.op, Value: 1})
		if pages == deepBacklogPageWarn {
			s.log.WarnContext(ctx, "a claim reads a deep backlog: every claim of a partition with ordering keys reads all of it",
				"partition", string(cl.call.partition), "pages", pages)
		}
		for _, it := range page.Items {
			r, err := parseRow(it)
			if err != nil {
				return err
			}
			keyed = keyed || r.key() != ""
			cl.consider(sel, r)
		}
		if len(page.LastEvaluatedKey) == 0 {
			cl.setKeyed(keyed)
			return nil
		}
		in.ExclusiveStartKey = page.LastEvaluatedKey
	}
}

func (cl *claim) consider(sel *selection, r *row) {
	switch {
	case r.Seq > cl.bound:
	case cl.claimable(r):
		sel.add(candidate{age: r.age(), sk: r.sk, key: r.key(), size: r.size, after: r.after})
	default:
		sel.block(r.key(), r.age())
	}
}

// linkAttributes are what a claim reads of the earlier records of a call.
const linkAttributes = "#PK, #SK, #state, #seq, #created_at"

// withoutHidden drops the records of which an earlier one of their key and call
// has not ended and was not selected: both may have been written while the
// partition was read, the older one behind the place that had been read, so that
// only the younger one was seen. Such a record takes the younger ones of its key
// with it.
func (cl *claim) withoutHidden(ctx context.Context, picked []candidate) ([]candidate, error) {
	selected := map[string]bool{}
	for _, c := range picked {
		selected[c.sk] = true
	}
	var ask []string
	for _, c := range picked {
		for _, sk := range c.after {
			if !selected[sk] {
				ask = append(ask, sk)
			}
		}
	}
	if len(ask) == 0 {
		return picked, nil
	}
	found, err := cl.lookUp(ctx, ask)
	if err != nil {
		return nil, err
	}
	gone := map[string]bool{}
	return slices.DeleteFunc(picked, func(c candidate) bool {
		for _, sk := range c.after {
			if earlier := found[sk]; earlier != nil && !earlier.State.Ended() && earlier.age().before(c.age) {
				gone[c.key] = true
			}
		}
		return c.key != "" && gone[c.key]
	}), nil
}

// lookUp reads records one by one: a GetItem sees all of a transaction or
// nothing, where a batch of reads may see half.
func (cl *claim) lookUp(ctx context.Context, sks []string) (map[string]*row, error) {
	slices.Sort(sks)
	sks = slices.Compact(sks)
	rows := make([]*row, len(sks))
	errs := make([]error, len(sks))
	each(len(sks), func(i int) {
		out, err := cl.store.getItem(ctx, cl.call, &ddb.GetItemInput{
			Key: key(cl.pk, sks[i]), ConsistentRead: yes(),
			ProjectionExpression: ptr(linkAttributes), ExpressionAttributeNames: names(linkAttributes),
		})
		if err == nil && len(out.Item) > 0 {
			rows[i], err = parseRow(out.Item)
		}
		errs[i] = err
	})
	found := map[string]*row{}
	for i, r := range rows {
		if r != nil {
			found[sks[i]] = r
		}
	}
	return found, errors.Join(errs...)
}
