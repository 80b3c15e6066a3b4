package protocol

import (
	"hash/maphash"
	"slices"
)

// model is a state machine with a finite number of states.
type model[S comparable] interface {
	// start is the first state.
	start() S
	// next emits every step from s, and what is wrong with it, if anything.
	next(s *S, emit func(step, *S, string))
	// identity is what tells states apart.
	identity(s *S) S
	// progress reports whether a step happens by itself sooner or later; faults
	// and what people do need not.
	progress(step) bool
	// done reports whether everything has been brought to its end.
	done(s *S) bool
	// outside reports whether the numbers of a state are at their bound.
	outside(s *S) bool
}

// step names one of the steps from a state.
type step struct {
	kind       kind
	actor, arg uint8
}

// found is what an exploration came to.
type found[S comparable] struct {
	states int
	depth  int    // of the longest of the shortest ways
	bad    string // empty: nothing is wrong in any state
	way    []step // to what is wrong
	cut    bool   // the bound on states was reached
}

// explorer visits every state, the nearest first, so that the first failure is
// one with the fewest steps.
//
// It remembers a 64-bit hash of each state and the way to it, not the state: two
// states with one hash would be taken for one. With ten million states the odds
// are three in a million, and other ones in each run, for the hash is seeded.
type explorer[S comparable] struct {
	model model[S]
	seed  maphash.Seed
	most  int

	// A hash table: hashes, and the numbers of the states that have them, from one
	// on; zero is a free place.
	hashes  []uint64
	numbers []uint32

	from  []uint32 // of each state: the state it was first reached from
	by    []step   // and the step
	ended []bool   // of each state: everything is done
	first []uint32 // of each state: its first edge, in edges
	edges []uint32 // steps of progress
}

// blockSize is how many states are kept in one piece, so that those of a level
// can be let go one by one.
const blockSize = 1 << 12

func explore[S comparable](m model[S], most int) found[S] {
	e := &explorer[S]{model: m, seed: maphash.MakeSeed(), most: most}
	e.hashes, e.numbers = make([]uint64, 1<<12), make([]uint32, 1<<12)
	return e.run()
}

// number returns the number of a state, and whether it is a new one.
func (e *explorer[S]) number(s *S) (uint32, bool) {
	if 4*(len(e.from)+1) > 3*len(e.hashes) {
		e.grow()
	}
	hash := maphash.Comparable(e.seed, e.model.identity(s))
	at := e.place(hash)
	if e.numbers[at] != 0 {
		return e.numbers[at] - 1, false
	}
	e.hashes[at], e.numbers[at] = hash, uint32(len(e.from)+1)
	return e.numbers[at] - 1, true
}

// place returns where a hash is in the table, or would be.
func (e *explorer[S]) place(hash uint64) uint64 {
	mask := uint64(len(e.hashes) - 1)
	at := hash & mask
	for e.numbers[at] != 0 && e.hashes[at] != hash {
		at = (at + 1) & mask
	}
	return at
}

func (e *explorer[S]) grow() {
	hashes, numbers := e.hashes, e.numbers
	e.hashes, e.numbers = make([]uint64, 2*len(hashes)), make([]uint32, 2*len(hashes))
	for i, number := range numbers {
		if number != 0 {
			at := e.place(hashes[i])
			e.hashes[at], e.numbers[at] = hashes[i], number
		}
	}
}

func (e *explorer[S]) add(s *S, from uint32, by step) {
	e.from = append(e.from, from)
	e.by = append(e.by, by)
	e.ended = append(e.ended, e.model.done(s))
}

func (e *explorer[S]) run() found[S] {
	start := e.model.start()
	e.number(&start)
	e.add(&start, 0, step{})
	var result found[S]
	level := [][]S{{start}}
	for at := uint32(0); len(level) > 0; {
		var following [][]S
		for b, block := range level {
			for i := range block {
				following = e.expand(&block[i], at, following, &result)
				if result.bad != "" || result.cut {
					result.states = len(e.from)
					return result
				}
				at++
			}
			level[b] = nil
		}
		level = following
		if len(level) > 0 {
			result.depth++
		}
	}
	result.states = len(e.from)
	if stuck, any := e.stuck(); any {
		result.bad, result.way = "stuck: no step that is sure to come leads on to an end from here", e.way(stuck)
	}
	return result
}

// expand visits what can be reached in one step from the state with a number,
// and adds what is new to the level that follows.
func (e *explorer[S]) expand(s *S, at uint32, following [][]S, result *found[S]) [][]S {
	e.first = append(e.first, uint32(len(e.edges)))
	e.model.next(s, func(by step, to *S, bad string) {
		if result.bad != "" || result.cut {
			return
		}
		if bad != "" {
			result.bad, result.way = bad, append(e.way(at), by)
			return
		}
		number, fresh := e.number(to)
		if fresh {
			e.add(to, at, by)
			last := len(following) - 1
			if last < 0 || len(following[last]) == blockSize {
				following = append(following, nil)
				last++
			}
			following[last] = append(following[last], *to)
			result.cut = len(e.from) > e.most || e.model.outside(to)
		}
		if number != at && e.model.progress(by) {
			e.edges = append(e.edges, number)
		}
	})
	return following
}

// stuck returns the nearest state from which no steps of progress lead to an
// end.
func (e *explorer[S]) stuck() (uint32, bool) {
	good := slices.Clone(e.ended)
	e.first = append(e.first, uint32(len(e.edges)))
	for changed := true; changed; {
		changed = false
		for i := len(good) - 1; i >= 0; i-- {
			if good[i] {
				continue
			}
			for _, to := range e.edges[e.first[i]:e.first[i+1]] {
				if good[to] {
					good[i], changed = true, true
					break
				}
			}
		}
	}
	at := slices.Index(good, false)
	return uint32(max(at, 0)), at >= 0
}

// way returns the steps to a state.
func (e *explorer[S]) way(to uint32) []step {
	var steps []step
	for ; to != 0; to = e.from[to] {
		steps = append(steps, e.by[to])
	}
	slices.Reverse(steps)
	return steps
}
