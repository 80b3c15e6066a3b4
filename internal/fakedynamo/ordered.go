package fakedynamo

import (
	"slices"
	"sort"
	"strings"
)

// place is where an entry stands: the sortable sort key, then what breaks ties.
type place struct {
	sort string
	tie  string
}

func (p place) compare(o place) int {
	if c := strings.Compare(p.sort, o.sort); c != 0 {
		return c
	}
	return strings.Compare(p.tie, o.tie)
}

// ordered is a sorted list, kept in chunks so that a change moves little.
type ordered[T any] struct {
	chunks [][]placed[T]
	count  int
}

type placed[T any] struct {
	at    place
	value T
}

const chunkSize = 256

// chunk is the index of the chunk that holds, or would hold, the place.
func (o *ordered[T]) chunk(p place) int {
	i := sort.Search(len(o.chunks), func(i int) bool { return o.chunks[i][0].at.compare(p) > 0 })
	return max(0, i-1)
}

func search[T any](chunk []placed[T], p place) (int, bool) {
	return slices.BinarySearchFunc(chunk, p, func(e placed[T], p place) int { return e.at.compare(p) })
}

func (o *ordered[T]) set(p place, v T) {
	if len(o.chunks) == 0 {
		o.chunks = append(o.chunks, []placed[T]{{p, v}})
		o.count = 1
		return
	}
	c := o.chunk(p)
	at, found := search(o.chunks[c], p)
	if found {
		o.chunks[c][at].value = v
		return
	}
	o.count++
	o.chunks[c] = slices.Insert(o.chunks[c], at, placed[T]{p, v})
	if len(o.chunks[c]) > chunkSize {
		half := len(o.chunks[c]) / 2
		right := slices.Clone(o.chunks[c][half:])
		clear(o.chunks[c][half:])
		o.chunks[c] = o.chunks[c][:half]
		o.chunks = slices.Insert(o.chunks, c+1, right)
	}
}

func (o *ordered[T]) remove(p place) {
	if len(o.chunks) == 0 {
		return
	}
	c := o.chunk(p)
	at, found := search(o.chunks[c], p)
	if !found {
		return
	}
	o.count--
	o.chunks[c] = slices.Delete(o.chunks[c], at, at+1)
	if len(o.chunks[c]) == 0 {
		o.chunks = slices.Delete(o.chunks, c, c+1)
	}
}

// ascend visits the entries from the place on, itself included, until visit
// returns false.
func (o *ordered[T]) ascend(from place, visit func(place, T) bool) {
	if len(o.chunks) == 0 {
		return
	}
	c := o.chunk(from)
	at, _ := search(o.chunks[c], from)
	for ; c < len(o.chunks); c, at = c+1, 0 {
		for _, e := range o.chunks[c][at:] {
			if !visit(e.at, e.value) {
				return
			}
		}
	}
}

// descend visits the entries before the place, the nearest first; everything if
// from is nil.
func (o *ordered[T]) descend(from *place, visit func(place, T) bool) {
	c := len(o.chunks) - 1
	if c < 0 {
		return
	}
	at := len(o.chunks[c])
	if from != nil {
		c = o.chunk(*from)
		at, _ = search(o.chunks[c], *from)
	}
	for {
		for at--; at >= 0; at-- {
			if e := o.chunks[c][at]; !visit(e.at, e.value) {
				return
			}
		}
		if c--; c < 0 {
			return
		}
		at = len(o.chunks[c])
	}
}
