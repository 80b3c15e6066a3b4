package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"

	"gobridge"
)

// notifier tells of work.
type notifier struct {
	mu       sync.Mutex
	next     int
	watchers map[int]func(gobridge.Partition)
	count    atomic.Int32
}

// Notify implements [gobridge.Notifier]. Commits of other processes, and of
// transactions that the store does not know of, are noticed within a few
// milliseconds, by a look at the database's data version. All partitions that have
// something ready are told of then.
func (s *Store) Notify(f func(gobridge.Partition)) (stop func()) {
	stop = s.notify.add(f)
	s.writer.signal() // from now on it looks for commits of others
	return stop
}

func (n *notifier) add(f func(gobridge.Partition)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watchers == nil {
		n.watchers = map[int]func(gobridge.Partition){}
	}
	n.next++
	key := n.next
	n.watchers[key] = f
	n.count.Store(int32(len(n.watchers)))
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watchers, key)
		n.count.Store(int32(len(n.watchers)))
	}
}

// watched reports whether anybody is registered.
func (n *notifier) watched() bool { return n.count.Load() > 0 }

// tell calls everybody for each partition.
func (n *notifier) tell(partitions map[gobridge.Partition]struct{}) {
	if !n.watched() || len(partitions) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.watchers {
		for p := range partitions {
			f(p)
		}
	}
}

// tellAny calls everybody: records of any partition may have become claimable.
func (n *notifier) tellAny() { n.tell(map[gobridge.Partition]struct{}{"": {}}) }

// selectReady finds the partitions in which a claim may find something that a commit
// has brought. What only time brings is for those who poll. What a dead owner had
// claimed is ready as such.
const selectReady = `SELECT name FROM gobridge_partition AS p
	WHERE pending + claimed > 0 AND EXISTS (SELECT 1 FROM gobridge_record WHERE partition = p.id AND ready = 1)`

// readyPartitions returns those partitions: so that one look saves every drainer a
// claim that finds nothing.
func readyPartitions(ctx context.Context, q Execer) (map[gobridge.Partition]struct{}, error) {
	out := map[gobridge.Partition]struct{}{}
	err := queryAll(ctx, q, selectReady, nil, func(rows *sql.Rows) error {
		var name gobridge.Partition
		err := rows.Scan(&name)
		out[name] = struct{}{}
		return err
	})
	return out, err
}
