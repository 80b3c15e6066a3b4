package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
	"gobridge/internal/percent"
)

// The sizes of a page.
const (
	defaultPage = 100
	largestPage = 1000
	// bulkEffort is how many records are read for one step of a bulk change, or to
	// find one. A page that somebody looks at gets no more than the largest page has.
	bulkEffort  = 5000
	retryEffort = 100_000
)

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// place is where in a search a page ends: at an age in a range of a partition.
type place struct {
	partition gobridge.Partition
	in        byte
	at        age
}

func (p place) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%c.%d.%d.%s", p.in, p.at.created, p.at.seq, p.partition))
}

func parseCursor(cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if parts := strings.SplitN(string(raw), ".", 4); err == nil && len(parts) == 4 {
		p := place{partition: gobridge.Partition(parts[3])}
		if n, _ := fmt.Sscanf(parts[0]+" "+parts[1]+" "+parts[2], "%c %d %d", &p.in, &p.at.created, &p.at.seq); n == 3 {
			return p, nil
		}
	}
	return place{}, fmt.Errorf("%w: this store has given none that is %q", gobridge.ErrInvalidCursor, cursor)
}

// search says which records a page is of.
type search struct {
	filter *gobridge.Filter
	dead   bool
	// pending takes in the claimed ones of older versions than the fence's.
	pending bool
	// except leaves out what it reports true for; nil leaves out nothing.
	except func(*row) bool
	// effort is how many records are read for one page: a filter that few match gives
	// short pages rather than a long wait.
	effort int
}

// page returns the records that are searched for, in ascending order of
// partition, dead letters first, and age, from a cursor on.
func (s *Store) page(ctx context.Context, c call, find *search, limit int, cursor string) (found []*row, next string, err error) {
	switch {
	case limit <= 0:
		limit = defaultPage
	case limit > largestPage:
		limit = largestPage
	}
	from, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	partitions, err := s.partitionsOf(ctx, c, find.filter, from.partition)
	if err != nil {
		return nil, "", err
	}
	effort := find.effort
	for _, p := range partitions {
		f, ok, err := s.readFence(ctx, c, p)
		if err != nil {
			return nil, "", err
		}
		for _, in := range [...]byte{deadRange, liveRange} {
			wanted := in == deadRange && find.dead && f.dead > 0 || in == liveRange && find.pending
			passed := from.partition == p && in == deadRange && from.in == liveRange
			if !ok || !wanted || passed {
				continue
			}
			r := rangeSearch{in: in, limit: limit - len(found), effort: effort, matches: func(r *row) bool {
				return find.states(r, &f) && matches(find.filter, r) && (find.except == nil || !find.except(r))
			}}
			if from.partition == p && from.in == in {
				r.after = from.at
			}
			got, end, err := s.searchRange(ctx, call{c.op, p}, r)
			if err != nil {
				return nil, "", err
			}
			found = append(found, got...)
			if end.more {
				return found, place{p, in, end.at}.cursor(), nil
			}
			effort = max(effort-end.read, 1)
		}
	}
	return found, "", nil
}

func (s *search) states(r *row, f *fence) bool {
	switch r.State {
	case gobridge.StateDead:
		return s.dead
	case gobridge.StatePending:
		return s.pending
	case gobridge.StateClaimed:
		return s.pending && r.ClaimedBy.Version < f.token.Version
	}
	return false
}

// rangeSearch looks for records in a range of the index.
type rangeSearch struct {
	in    byte
	after age
	// limit is how many are wanted, effort how many are read for it at most.
	limit, effort int
	// likely, unless nil, decides by what the index has whether to read a record;
	// the index may be behind.
	likely  func(*row) bool
	matches func(*row) bool
}

// rangeEnd is where a search ended: behind at, and whether there may be more.
type rangeEnd struct {
	at   age
	more bool
	read int
}

// searchRange returns the records of a partition that match, in ascending age.
// The index says which there are, the table what they are.
func (s *Store) searchRange(ctx context.Context, c call, find rangeSearch) (found []*row, end rangeEnd, err error) {
	pk := partitionKey(c.partition)
	end.at = find.after
	var ask []string
	ages := map[string]age{}
	flush := func() error {
		rows, err := s.getRows(ctx, c, pk, ask, "")
		if err != nil {
			return err
		}
		end.read += len(ask)
		for _, sk := range ask {
			if r := rows[sk]; r != nil && find.matches(r) {
				if len(found) == find.limit {
					end.more = true
					break
				}
				found = append(found, r)
			}
			end.at = ages[sk]
		}
		ask = ask[:0]
		return nil
	}
	err = s.queryAll(ctx, c, s.indexQuery(pk, find.in, find.after, 500), func(it item) (bool, error) {
		r, err := parseRow(it)
		if err != nil || find.likely != nil && !find.likely(r) {
			return err == nil, err
		}
		p := parser{it: it}
		if ages[r.sk], err = parseClaimSort(p.bytes(attrClaimSort)); err != nil {
			return false, err
		}
		if end.read+len(ask) >= find.effort {
			end.more = true
			err := flush()
			return false, err
		}
		if ask = append(ask, r.sk); len(ask) == 100 {
			err = flush()
		}
		return !end.more, err
	})
	if err == nil && len(ask) > 0 {
		err = flush()
	}
	return found, end, err
}

// partitionsOf returns the partitions that a filter can match, from a name on,
// in ascending order.
func (s *Store) partitionsOf(ctx context.Context, c call, filter *gobridge.Filter, from gobridge.Partition) ([]gobridge.Partition, error) {
	all := []gobridge.Partition{filter.Partition}
	if filter.Partition == "" {
		var err error
		if all, err = s.partitions(ctx, c); err != nil {
			return nil, err
		}
	} else if unheardOf(filter.Partition) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(p gobridge.Partition) bool {
		route, _, _, _ := p.Split()
		return p < from || filter.Route != "" && filter.Route != route
	}), nil
}

// partitions returns every partition that the store knows.
func (s *Store) partitions(ctx context.Context, c call) ([]gobridge.Partition, error) {
	condition, projection := "#PK = :pk", "#SK"
	var out []gobridge.Partition
	err := s.queryAll(ctx, c, &ddb.QueryInput{
		KeyConditionExpression: &condition, ProjectionExpression: &projection, ExpressionAttributeNames: names(condition, projection),
		ExpressionAttributeValues: item{":pk": str(partitionsPK)}, ConsistentRead: yes(),
	}, func(it item) (bool, error) {
		p := parser{it: it}
		name, err := percent.Decode(p.text(attrSK))
		out = append(out, gobridge.Partition(name))
		return true, err
	})
	slices.Sort(out)
	return out, err
}

// matches reports whether r, in a partition that matches, matches the rest of a
// filter.
func matches(f *gobridge.Filter, r *row) bool {
	item := r.BulkItem()
	return f.Matches(&item, r.State)
}
