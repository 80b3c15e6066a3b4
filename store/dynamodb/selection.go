package dynamodb

import "slices"

// candidate is what a claim knows of a record when it selects.
type candidate struct {
	age
	sk, key string
	size    int64
	after   []string
}

// selection picks the oldest claimable records out of any number that come in
// any order, keeping only so many of them.
//
// A record with a key must not be picked unless all older ones of its key are.
// So the oldest unclaimable record of each key is remembered for good, and
// nothing is picked that is not older than the oldest candidate that there was
// no room for.
type selection struct {
	// keep is how many candidates survive a trim, which is made at twice as many.
	keep int
	// blockers are the oldest unclaimable records of the keys.
	blockers map[string]age
	kept     []candidate
	// floor is the oldest candidate that was trimmed.
	floor   age
	trimmed bool
}

func newSelection(keep int) *selection {
	return &selection{keep: keep, blockers: map[string]age{}}
}

// again is a selection that knows the blockers of one before, which then take
// no room of others.
func (s *selection) again() *selection {
	return &selection{keep: s.keep, blockers: s.blockers}
}

// block takes in an unclaimable record.
func (s *selection) block(key string, a age) {
	if key == "" {
		return
	}
	if old, ok := s.blockers[key]; !ok || a.before(old) {
		s.blockers[key] = a
	}
}

// add takes in a claimable record.
func (s *selection) add(c candidate) {
	if s.blocked(&c) || s.trimmed && !c.before(s.floor) {
		return
	}
	s.kept = append(s.kept, c)
	if len(s.kept) > 2*s.keep {
		s.trim()
	}
}

func (s *selection) blocked(c *candidate) bool {
	if c.key == "" {
		return false
	}
	blocker, ok := s.blockers[c.key]
	return ok && blocker.before(c.age)
}

func (s *selection) sort() {
	s.kept = slices.DeleteFunc(s.kept, func(c candidate) bool { return s.blocked(&c) })
	slices.SortFunc(s.kept, func(a, b candidate) int {
		if a.before(b.age) {
			return -1
		}
		return 1
	})
}

func (s *selection) trim() {
	s.sort()
	if len(s.kept) <= s.keep {
		return
	}
	s.floor, s.trimmed = s.kept[s.keep].age, true
	s.kept = s.kept[:s.keep]
}

// pick returns the oldest candidates, up to a number and, unless that is zero,
// up to a size, but at least one. Short says that there may be more, which
// another pass that knows these blockers would find.
func (s *selection) pick(limit int, maxBytes int64) (picked []candidate, short bool) {
	s.sort()
	if s.trimmed {
		s.kept = slices.DeleteFunc(s.kept, func(c candidate) bool { return !c.before(s.floor) })
	}
	var bytes int64
	for _, c := range s.kept {
		bytes += c.size
		if len(picked) == limit || maxBytes > 0 && bytes > maxBytes && len(picked) > 0 {
			return picked, false
		}
		picked = append(picked, c)
	}
	return picked, s.trimmed && len(picked) < limit
}
