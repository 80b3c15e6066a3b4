package protocol

import (
	"slices"
	"testing"
)

// steps is a machine over numbers: from each, to others.
type steps struct {
	to    map[int][]int
	bad   int // no number if zero
	ends  []int
	fault map[int]bool // numbers that a fault leads to
}

func (m *steps) start() int           { return 1 }
func (m *steps) identity(s *int) int  { return *s }
func (m *steps) progress(s step) bool { return !m.fault[int(s.arg)] }
func (m *steps) done(s *int) bool     { return slices.Contains(m.ends, *s) }
func (m *steps) outside(*int) bool    { return false }
func (m *steps) next(s *int, emit func(step, *int, string)) {
	for _, to := range m.to[*s] {
		bad := ""
		if to == m.bad {
			bad = "bad"
		}
		emit(step{arg: uint8(to)}, &to, bad)
	}
}

func TestExploreFindsTheShortestWay(t *testing.T) {
	m := &steps{to: map[int][]int{1: {2, 3}, 2: {4}, 4: {9}, 3: {9}, 9: {}}, bad: 9, ends: []int{4}}
	f := explore[int](m, 100)
	if f.bad != "bad" || !slices.Equal(args(f.way), []int{3, 9}) {
		t.Errorf("found %q by %v, want the way 3, 9", f.bad, args(f.way))
	}
}

func TestExploreVisitsEachStateOnce(t *testing.T) {
	m := &steps{to: map[int][]int{1: {2, 3}, 2: {4}, 3: {4}, 4: {1, 5}}, ends: []int{5}}
	if f := explore[int](m, 100); f.bad != "" || f.states != 5 || f.depth != 3 || f.cut {
		t.Errorf("got %+v, want 5 states, depth 3, nothing wrong", f)
	}
	if f := explore[int](m, 3); !f.cut {
		t.Error("an exploration that reached its bound does not say so")
	}
}

func TestExploreFindsWhereThingsAreStuck(t *testing.T) {
	for _, c := range []struct {
		name string
		m    steps
		way  []int // nil: not stuck
	}{
		{"a dead end", steps{to: map[int][]int{1: {2, 3}, 2: {4}, 3: {}}, ends: []int{4}}, []int{3}},
		{"a circle without a way out", steps{to: map[int][]int{1: {2, 4}, 2: {3}, 3: {2}}, ends: []int{4}}, []int{2}},
		{"a circle with a way out", steps{to: map[int][]int{1: {2}, 2: {3}, 3: {2, 4}}, ends: []int{4}}, nil},
		{"a way out that only a fault opens", steps{to: map[int][]int{1: {2}, 2: {4}}, ends: []int{4}, fault: map[int]bool{4: true}}, []int{}},
	} {
		f := explore[int](&c.m, 100)
		if (f.bad != "") != (c.way != nil) || !slices.Equal(args(f.way), c.way) {
			t.Errorf("%s: found %q by %v, want the way %v", c.name, f.bad, args(f.way), c.way)
		}
	}
}

func TestExploreManyStates(t *testing.T) {
	const n = 200 // numbers below n*n, in a grid
	grid := &steps{to: map[int][]int{}, ends: []int{n*n - 1}}
	for i := 1; i < n*n; i++ {
		for _, to := range []int{i + 1, i + n} {
			if to < n*n {
				grid.to[i] = append(grid.to[i], to)
			}
		}
	}
	if f := explore[int](grid, n*n); f.states != n*n-1 || f.bad != "" {
		t.Errorf("visited %d states of %d: %s", f.states, n*n-1, f.bad)
	}
}

func args(way []step) []int {
	var out []int
	for _, s := range way {
		out = append(out, int(s.arg))
	}
	return out
}
