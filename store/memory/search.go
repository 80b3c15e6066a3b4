package memory

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gobridge"
)

// The sizes of a page.
const (
	defaultPage = 100
	largestPage = 1000
	// bulkEffort is how many records are looked at for one step of a bulk change. A
	// page that somebody looks at gets no more than the largest page has.
	bulkEffort = 20_000
)

// search says which records a page is of.
type search struct {
	filter *gobridge.Filter
	dead   bool
	// pending takes in the claimed ones of older versions than the fence's.
	pending bool
	// except leaves out what it reports true for; nil leaves out nothing.
	except func(*record) bool
	// effort is how many records are looked at for one page: a filter that few match
	// gives short pages rather than a long wait for everybody else.
	effort int
}

// page returns the records that are searched for, in ascending order of
// partition and age, from a cursor on, and the cursor of the next page.
func (db *database) page(find *search, limit int, cursor string) (found []*record, next string, err error) {
	switch {
	case limit <= 0:
		limit = defaultPage
	case limit > largestPage:
		limit = largestPage
	}
	from, at, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	effort := find.effort
	for _, p := range db.inOrder(find.filter, from) {
		if p.name != from {
			at = birth
		}
		bounds := find.bounds(p)
		for r := p.index.next(at, &bounds); r != nil; r = p.index.next(at, &bounds) {
			hit := r.matches(find.filter) && (find.except == nil || !find.except(r))
			if hit && len(found) == limit || effort == 0 {
				return found, formatCursor(p.name, at), nil
			}
			if hit {
				found = append(found, r)
			}
			at = r.age()
			effort--
		}
	}
	return found, "", nil
}

// bounds are those of the index that find the states searched for.
func (s *search) bounds(p *partition) values {
	b := noBounds()
	if s.dead {
		b[byDeath] = farAway
	}
	if s.pending {
		b[byRetry] = 0
		b[byClaim] = p.fence.Version - 1
	}
	return b
}

// inOrder returns the partitions that a filter can match, from a name on.
func (db *database) inOrder(filter *gobridge.Filter, from gobridge.Partition) []*partition {
	var out []*partition
	for _, name := range slices.Sorted(maps.Keys(db.partitions)) {
		p := db.partitions[name]
		if name < from || filter.Partition != "" && filter.Partition != name || filter.Route != "" && filter.Route != p.route {
			continue
		}
		out = append(out, p)
	}
	return out
}

// formatCursor makes the cursor for what comes after an age in a partition.
func formatCursor(p gobridge.Partition, a age) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%s", a.created, a.seq, p))
}

func parseCursor(cursor string) (gobridge.Partition, age, error) {
	if cursor == "" {
		return "", birth, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		var a age
		numbers, name, ok := cutSecond(string(raw))
		if _, scanErr := fmt.Sscanf(numbers, "%d.%d", &a.created, &a.seq); ok && scanErr == nil {
			return gobridge.Partition(name), a, nil
		}
	}
	return "", age{}, fmt.Errorf("%w: this store has given none that is %q", gobridge.ErrInvalidCursor, cursor)
}

// cutSecond cuts s at its second dot.
func cutSecond(s string) (before, after string, ok bool) {
	first := strings.IndexByte(s, '.') + 1
	second := strings.IndexByte(s[first:], '.')
	if first == 0 || second < 0 {
		return "", "", false
	}
	return s[:first+second], s[first+second+1:], true
}
