package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gobridge"
)

const selectSize = `SELECT (SELECT page_count FROM pragma_page_count()), (SELECT freelist_count FROM pragma_freelist_count()),
	(SELECT page_size FROM pragma_page_size())`

const (
	// logPages is the length that SQLite lets a write-ahead log get before it
	// brings it into the database. leaseLogPages is ours for the leases, which are
	// renewed all the time and few.
	logPages      = 1000
	leaseLogPages = 64

	// costFactor is what a byte of a message takes of the disk at most: in the
	// database, where a payload may fill half of its page, and in the log.
	// recordCost is what a record takes besides.
	costFactor = 3
	recordCost = 4096

	// leastRoom is what must be left for a message of the usual size.
	leastRoom = 64 << 10
)

// sizes are the figures of a database in bytes.
type sizes struct {
	used, spare int64 // in use, and what the file has spare
	owed        int64 // what its files will still take for what it holds already
}

// disk watches how much of its disk the database takes. What this process stores
// counts from the moment that it is about to; what others do is seen at the next
// look.
type disk struct {
	file  string
	share float64
	every time.Duration
	// size returns the database's figures, free the bytes that its disk has; free is
	// nil where nobody can tell.
	size func(context.Context) (sizes, error)
	free func() (int64, error)

	mu     sync.Mutex
	looked time.Time
	room   int64 // at the last look: what the share allows besides
	left   int64 // likewise: what the disk had
	used   int64 // likewise: what the database took
	held   int64 // for what is being stored

	spent atomic.Int64 // by what was stored since the last look
}

// check returns an error while the database takes more than its share.
func (d *disk) check(ctx context.Context) error {
	if d.free == nil || d.share >= 1 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.has(0) {
		d.look(ctx)
	}
	return d.refusal(0)
}

// take holds room for what costs so many bytes, or returns an error if that would
// exceed the share. Whoever got it calls put.
func (d *disk) take(ctx context.Context, cost int64) error {
	if d.free == nil || d.share >= 1 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.has(cost) {
		d.look(ctx)
	}
	if err := d.refusal(cost); err != nil {
		return err
	}
	d.held += cost
	return nil
}

// put ends what take began. What was stored is taken for stored even where it is
// not known, and is seen as it is by the next look.
func (d *disk) put(cost int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held -= cost
	d.spend(cost)
}

// spend counts what is stored whether or not there is room. It waits for nobody: who
// looks at the disk may wait for a connection, and who is here may have it.
func (d *disk) spend(cost int64) { d.spent.Add(cost) }

// has reports whether what is known is recent and answers for a cost: there is
// room, or there was none at the last look and nothing has changed since.
func (d *disk) has(cost int64) bool {
	if d.looked.IsZero() || time.Since(d.looked) >= d.every {
		return false
	}
	spent := d.spent.Load()
	return d.room-spent-d.held >= max(cost, leastRoom) || spent == 0 || d.room < leastRoom
}

// look sets the figures. One that fails says nothing; the write itself will.
func (d *disk) look(ctx context.Context) {
	d.looked = time.Time{}
	seen := d.spent.Load()
	size, err := d.size(ctx)
	if err != nil {
		return
	}
	free, err := d.free()
	if err != nil {
		return
	}
	d.used, d.left = size.used, size.spare+free-size.owed
	d.room = int64(d.share*float64(d.used+d.left)) - d.used
	d.looked = time.Now()
	d.spent.Add(-seen)
}

// refusal returns an error if there is no room for a cost.
func (d *disk) refusal(cost int64) error {
	room := d.room - d.spent.Load() - d.held
	if d.looked.IsZero() || room >= max(cost, leastRoom) {
		return nil
	}
	more := int64(float64(d.used)/d.share) - d.used - d.left + leastRoom
	return fmt.Errorf("%w: it takes %d MiB and its disk, that of %s, has %d MiB left, less than %.0f %% of the two together; %d MiB more are needed",
		gobridge.ErrOutboxFull, d.used>>20, d.file, max(d.left, 0)>>20, 100*(1-d.share), max(1, more>>20))
}

// empty reports whether the disk has next to nothing left, as far as can be told.
func (d *disk) empty() bool {
	if d.free == nil {
		return false
	}
	free, err := d.free()
	return err == nil && free < leastRoom
}

// size returns the figures of the database and its files.
func (s *Store) size(ctx context.Context) (sizes, error) {
	var pages, free, page int64
	if _, err := queryOne(ctx, s.read, selectSize, nil, &pages, &free, &page); err != nil {
		return sizes{}, err
	}
	out := sizes{used: (pages - free) * page, spare: free * page}
	out.owed = missing(s.file, pages*page) + missing(s.file+"-wal", logPages*(page+24)) +
		missing(s.leases.path+"-wal", leaseLogPages*(page+24))
	return out, nil
}

// missing returns by how much a file is shorter than it will be.
func missing(file string, size int64) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return size
	}
	return max(0, size-info.Size())
}

// fullError is what an operation returns when the disk has no room for it.
func fullError(op string, p gobridge.Partition, err error) error {
	return &gobridge.Error{Op: op, Partition: p, Err: err,
		Hint: "make room on the disk; or let the destinations take what waits, which makes room in the outbox"}
}
