package fakedynamo

import (
	"container/heap"
	"math/rand/v2"
	"slices"
)

// lag is what an index has yet to show. Changes of one item appear in their
// order; between items there is none, as in DynamoDB.
type lag struct {
	held    bool
	random  *rand.Rand
	most    int
	pending map[string]*pendingItem
	order   uint64
	due     dueHeap
}

type pendingItem struct {
	key     Key
	order   uint64 // of the oldest change
	changes []pendingChange
}

type pendingChange struct {
	shown *record // nil removes
	due   int64
}

// dueEntry says when the next change of an item is due, in server calls.
type dueEntry struct {
	due int64
	key string
}

type dueHeap []dueEntry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// show puts a change into the index, or behind the item's others that wait.
func (x *index) show(s *Server, public Key, key string, shown *record) {
	l := &x.lag
	waiting := l.pending[key]
	if !l.held && l.random == nil && waiting == nil {
		x.space.set(key, shown)
		return
	}
	if waiting == nil {
		l.order++
		waiting = &pendingItem{key: public, order: l.order}
		if l.pending == nil {
			l.pending = map[string]*pendingItem{}
		}
		l.pending[key] = waiting
	}
	change := pendingChange{shown: shown}
	if l.random != nil {
		change.due = s.calls.Load() + 1 + l.random.Int64N(int64(l.most))
		if n := len(waiting.changes); n > 0 {
			change.due = max(change.due, waiting.changes[n-1].due)
		}
		heap.Push(&l.due, dueEntry{change.due, key})
	}
	waiting.changes = append(waiting.changes, change)
}

// advance shows the oldest change that waits for the item.
func (x *index) advance(key string) {
	waiting := x.lag.pending[key]
	if waiting == nil {
		return
	}
	x.space.set(key, waiting.changes[0].shown)
	waiting.changes = waiting.changes[1:]
	if len(waiting.changes) == 0 {
		delete(x.lag.pending, key)
	}
}

// showDue shows what is due by now.
func (s *Server) showDue() {
	if !s.lagging {
		return
	}
	now := s.calls.Load()
	for _, t := range s.tables {
		for _, x := range append(t.indexes[:len(t.indexes):len(t.indexes)], t.replica) {
			for x != nil && len(x.lag.due) > 0 && x.lag.due[0].due <= now {
				x.advance(heap.Pop(&x.lag.due).(dueEntry).key)
			}
		}
	}
}

func (x *index) settle() {
	for key, waiting := range x.lag.pending {
		for range waiting.changes {
			x.advance(key)
		}
	}
	x.lag.due = nil
}

// findIndex panics on a name that the test got wrong; the caller holds the mutex.
func (s *Server) findIndex(tableName, name string) (*table, *index) {
	t := s.tables[tableName]
	if t == nil {
		panic("fakedynamo: no table " + tableName)
	}
	if name == Replicas {
		return t, t.replicate()
	}
	x := t.index(name)
	if x == nil {
		panic("fakedynamo: table " + tableName + " has no index " + name)
	}
	return t, x
}

// Replicas stands for an index's name in HoldIndex, LagIndex and their likes and
// means the copies of the table that eventually consistent reads are answered from.
// Without lag they are the table itself.
const Replicas = ""

// HoldIndex keeps changes from the index until they are shown by ShowItem,
// ShowNext or ReleaseIndex.
func (s *Server) HoldIndex(tableName, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, x := s.findIndex(tableName, name)
	x.settle()
	x.lag.held, x.lag.random = true, nil
}

// LagIndex lets each change of the index appear after 1 to most further calls of
// the server, drawn from the seed: items overtake each other.
func (s *Server) LagIndex(tableName, name string, seed uint64, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, x := s.findIndex(tableName, name)
	x.settle()
	x.lag.held, x.lag.random, x.lag.most = false, rand.New(rand.NewPCG(seed, seed)), max(1, most)
	s.lagging = true
}

// ReleaseIndex shows everything and ends holding and lag.
func (s *Server) ReleaseIndex(tableName, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, x := s.findIndex(tableName, name)
	x.settle()
	x.lag.held, x.lag.random = false, nil
}

// PendingItems lists the items whose changes the index doesn't show yet, in the
// order of their oldest change.
func (s *Server) PendingItems(tableName, name string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, x := s.findIndex(tableName, name)
	waiting := make([]*pendingItem, 0, len(x.lag.pending))
	for _, w := range x.lag.pending {
		waiting = append(waiting, w)
	}
	slices.SortFunc(waiting, func(a, b *pendingItem) int { return int(a.order) - int(b.order) })
	keys := make([]Key, len(waiting))
	for i, w := range waiting {
		keys[i] = w.key
	}
	return keys
}

// ShowItem shows all changes of one item; false if none waits.
func (s *Server) ShowItem(tableName, name string, key Key) bool {
	return s.showSome(tableName, name, key, false)
}

// ShowNext shows the oldest waiting change of one item; false if none waits.
func (s *Server) ShowNext(tableName, name string, key Key) bool {
	return s.showSome(tableName, name, key, true)
}

func (s *Server) showSome(tableName, name string, key Key, one bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, x := s.findIndex(tableName, name)
	internal := t.schema.itemKeyOf(key)
	found := x.lag.pending[internal] != nil
	for x.lag.pending[internal] != nil {
		x.advance(internal)
		if one {
			break
		}
	}
	return found
}
