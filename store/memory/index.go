package memory

import (
	"math"
	"math/rand/v2"
)

// index holds all records of a partition by age, so that the next one with a
// given property is found in O(log n), however many without it lie between.
//
// It is a treap (Seidel and Aragon, "Randomized Search Trees", Algorithmica 16,
// 1996) in which every node knows the lowest value of each attribute below it.
// A record has a property when the attribute is at most a bound, so a search
// passes over every subtree in which none is.
type index struct{ root *record }

// The attributes of a record. One that a record does not have is never.
const (
	// byDue is the due time of a pending record that nothing but time holds
	// back: it has no key or is its key's head, and is not halted.
	byDue = iota
	// byVersion and byClaimedAt are those of a claimed record that has no key or
	// is its key's head, and is not halted: what a claim may take over.
	byVersion
	byClaimedAt
	// byExpiry is ExpiresAt of a pending record.
	byExpiry
	// byRetry is minus RetryAt of a pending record, so that those far ahead are
	// found; all pending ones have a value of at most zero.
	byRetry
	// byClaim is the version of any claimed record.
	byClaim
	// byEnd is EndedAt of an ended record other than a dead letter, byDeath that
	// of a dead letter.
	byEnd
	byDeath

	attributes
)

// values are a record's attributes, or the bounds on them in a search.
type values [attributes]int64

// noBounds finds nothing until a bound is set.
func noBounds() values { return all(math.MinInt64) }

// noValues has no attribute.
func noValues() values { return all(never) }

func all(v int64) (out values) {
	for i := range out {
		out[i] = v
	}
	return out
}

// within reports whether any value is within its bound.
func (v *values) within(bounds *values) bool {
	for i := range v {
		if v[i] <= bounds[i] {
			return true
		}
	}
	return false
}

// node is a record's place in the treap.
type node struct {
	left, right *record
	priority    uint64
	values      values // of the record
	lowest      values // of the record and all below
}

func (r *record) sum() {
	r.lowest = r.values
	for _, below := range [...]*record{r.left, r.right} {
		if below == nil {
			continue
		}
		for i, v := range below.lowest {
			r.lowest[i] = min(r.lowest[i], v)
		}
	}
}

// insert adds r, whose values are set.
func (x *index) insert(r *record) {
	r.node = node{priority: rand.Uint64(), values: r.values}
	x.root = insert(x.root, r)
}

func insert(t, r *record) *record {
	switch {
	case t == nil:
		r.sum()
		return r
	case r.priority > t.priority:
		r.left, r.right = split(t, r.age())
		r.sum()
		return r
	case r.age().before(t.age()):
		t.left = insert(t.left, r)
	default:
		t.right = insert(t.right, r)
	}
	t.sum()
	return t
}

// split cuts t into what is older than a and the rest.
func split(t *record, a age) (older, rest *record) {
	if t == nil {
		return nil, nil
	}
	if t.age().before(a) {
		t.right, rest = split(t.right, a)
		t.sum()
		return t, rest
	}
	older, t.left = split(t.left, a)
	t.sum()
	return older, t
}

// remove takes r out.
func (x *index) remove(r *record) {
	x.root = remove(x.root, r)
	r.left, r.right = nil, nil
}

func remove(t, r *record) *record {
	switch {
	case t == r:
		return merge(t.left, t.right)
	case r.age().before(t.age()):
		t.left = remove(t.left, r)
	default:
		t.right = remove(t.right, r)
	}
	t.sum()
	return t
}

// merge joins two treaps, all of a being older than all of b.
func merge(a, b *record) *record {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = merge(a.right, b)
		a.sum()
		return a
	default:
		b.left = merge(a, b.left)
		b.sum()
		return b
	}
}

// set gives r, which is in the index, new values.
func (x *index) set(r *record, v values) {
	if r.values != v {
		r.values = v
		update(x.root, r)
	}
}

func update(t, r *record) {
	if t != r {
		if r.age().before(t.age()) {
			update(t.left, r)
		} else {
			update(t.right, r)
		}
	}
	t.sum()
}

// next returns the oldest record younger than a that has a value within bounds.
func (x *index) next(a age, bounds *values) *record { return next(x.root, a, bounds) }

func next(t *record, a age, bounds *values) *record {
	if t == nil || !t.lowest.within(bounds) {
		return nil
	}
	if a.before(t.age()) {
		if r := next(t.left, a, bounds); r != nil {
			return r
		}
		if t.values.within(bounds) {
			return t
		}
	}
	return next(t.right, a, bounds)
}

// birth is older than any record.
var birth = age{created: math.MinInt64}

// first returns the oldest record, and after the next younger one.
func (x *index) first() *record          { return x.next(birth, &anything) }
func (x *index) after(r *record) *record { return x.next(r.age(), &anything) }

// anything finds every record.
var anything = all(never)
