package dynamodb

import (
	"context"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// What the index has of a record: all that selecting needs and nothing that a
// claim changes.
const (
	indexAttributes = "#PK, #SK, #claim_sort, #ordering_key, #not_before, #retry_at"
	inRange         = "#PK = :pk AND #claim_sort BETWEEN :from AND :to"
)

// indexQuery reads a range of the index in ascending age, from after an age on.
func (s *Store) indexQuery(pk string, in byte, after age, limit int32) *ddb.QueryInput {
	return &ddb.QueryInput{
		IndexName: ptr(claimIndex), KeyConditionExpression: ptr(inRange), ProjectionExpression: ptr(indexAttributes),
		ExpressionAttributeNames: names(inRange, indexAttributes),
		ExpressionAttributeValues: item{
			":pk":   str(pk),
			":from": bin(claimSort(in, age{after.created, after.seq + 1})), ":to": bin(append(claimSort(in, age{-1, -1}), 0xff)),
		},
		Limit: &limit,
	}
}

// fromIndex selects from the front of the index. Met says that it met a record
// with an ordering key, and has given up: the index is not in step with the
// table, one record at a time, and may show a younger record of a key before its
// older sibling.
func (cl *claim) fromIndex(ctx context.Context) (rows []*row, met bool, err error) {
	s, want := cl.store, cl.request.Limit
	step := 100
	if cl.request.MaxBytes > 0 {
		step = 25
	}
	var bytes int64
	var ask []string
	seen := map[string]bool{}
	full := false
	flush := func() error {
		found, err := s.getRows(ctx, cl.call, cl.pk, ask, "")
		if err != nil {
			return err
		}
		for _, sk := range ask {
			if r := found[sk]; r != nil && r.key() == "" && !full && cl.claimable(r) {
				bytes += r.size
				if full = cl.request.MaxBytes > 0 && bytes > cl.request.MaxBytes && len(rows) > 0; full {
					break
				}
				rows = append(rows, r)
				full = len(rows) == want
			}
		}
		ask = ask[:0]
		return nil
	}
	page := int32(min(want+len(cl.held)+1, 1000))
	err = s.queryAll(ctx, cl.call, s.indexQuery(cl.pk, liveRange, age{}, page), func(it item) (bool, error) {
		r, err := parseRow(it)
		switch {
		case err != nil:
			return false, err
		case r.key() != "":
			met = true
			return false, nil
		case seen[r.sk] || cl.held[r.sk] || cl.now.Before(r.DueAt()) || cl.controls.halt(cl.route, cl.binding, r) != nil:
			return true, nil
		}
		seen[r.sk] = true
		if ask = append(ask, r.sk); len(ask) == min(step, want-len(rows)) {
			err = flush()
		}
		return !full, err
	})
	if err == nil && !met && !full && len(ask) > 0 {
		err = flush()
	}
	if err != nil || met {
		cl.setKeyed(met)
		return nil, met, err
	}
	byAge(rows)
	return rows, false, nil
}
