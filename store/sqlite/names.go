package sqlite

import (
	"gobridge"
)

// names remembers which records of a partition the seqs of claimed ones are of,
// so that a claim can tell what is held from an index alone. A seq is never given
// to another record, so what is remembered cannot become wrong; what a
// transaction that was undone has added is forgotten. The writer's goroutine
// owns it.
type names struct {
	refs map[int64]gobridge.Ref
}

// maxSpare is how many names are kept beyond twice those in use.
const maxSpare = 1024

func (n *names) add(seq int64, ref gobridge.Ref) { n.refs[seq] = ref }

// allIn reports whether the seqs in a list, decimal numbers with commas between
// them, are all known and of records in held.
func (n *names) allIn(list []byte, held map[gobridge.Ref]struct{}) bool {
	all, count := true, 0
	for len(list) > 0 && all {
		var seq int64
		seq, list = cutSeq(list)
		ref, known := n.refs[seq]
		if known {
			_, known = held[ref]
		}
		all = known
		count++
	}
	if all && len(n.refs) > 2*count+maxSpare {
		clear(n.refs) // the next claim looks closely and learns them anew
		return false
	}
	return all
}

// cutSeq takes the first number off a list.
func cutSeq(list []byte) (seq int64, rest []byte) {
	for i, c := range list {
		if c == ',' {
			return seq, list[i+1:]
		}
		seq = 10*seq + int64(c-'0')
	}
	return seq, nil
}

// namesOf returns the names of a partition.
func (s *Store) namesOf(p gobridge.Partition) *names {
	n := s.names[p]
	if n == nil {
		n = &names{refs: map[int64]gobridge.Ref{}}
		s.names[p] = n
	}
	return n
}
