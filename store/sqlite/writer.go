package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"gobridge"
)

// WriterStats counts what the store's writer has done. Counters only grow.
type WriterStats struct {
	// Commits is how many transactions were committed, Requests how many calls
	// they carried.
	Commits  int64
	Requests int64
	// MaxClaimWait is the most commits that any claim or settle had to wait
	// for before the transaction that carried it began.
	MaxClaimWait int64
}

// The bounds of a transaction. Claims and settles are always taken.
const (
	maxPersistCalls = 512
	maxPersistBytes = 8 << 20
	maxTransaction  = 20 * time.Millisecond // then nothing more is taken in
	maxLockPause    = 4 * time.Millisecond  // between two looks at a lock
	pollInterval    = 5 * time.Millisecond  // between two looks for commits of others
)

// class says how urgent a request is.
type class int

const (
	urgent     class = iota // claims, settles, controls
	persisting              // persists, which are done together
	background              // housekeeping and bulk changes: one a transaction
	classes
)

// The states of a request.
const (
	queued    int32 = iota
	taken           // the writer works on it; its outcome will be known soon
	abandoned       // the caller has gone
)

// request is a call that wants to write.
type request struct {
	class   class
	persist *persistCall       // of the class persisting
	run     func(t *txn) error // of the others; it may be run again after a rollback

	ctx   context.Context // the caller's: how long it waits for a lock
	state atomic.Int32
	since int64 // commits when it was queued
	err   error
	done  chan struct{}
}

// txn is the transaction that a request runs in.
type txn struct {
	ctx context.Context
	Execer
	// touched are the partitions where records may have become claimable.
	touched map[gobridge.Partition]struct{}
}

func (t *txn) touch(p gobridge.Partition) { t.touched[p] = struct{}{} }

// writer does everything that writes: one goroutine on one connection.
type writer struct {
	connect func(context.Context) (*sql.Conn, error)
	persist func(*txn, []*persistCall) error
	notify  *notifier
	undone  func() // called after a transaction has been undone, and for each new connection

	// turn is held during a transaction, and by [Store.InTx] during its own:
	// waiting for it is fair, which waiting for SQLite's lock is not.
	turn chan struct{}

	mu     sync.Mutex
	queue  [classes][]*request
	closed bool
	wake   chan struct{} // has room for one
	asked  atomic.Bool   // to look for commits of others at once

	commits, requests, maxWait atomic.Int64
	full                       atomic.Bool // a write has found no room since it was last tried

	// Only the goroutine uses what follows.
	conn        *sql.Conn
	stmts       *prepared
	polledAt    time.Time
	dataVersion int64
	stopped     chan struct{}
}

func newWriter(connect func(context.Context) (*sql.Conn, error), persist func(*txn, []*persistCall) error, notify *notifier) *writer {
	return &writer{
		connect: connect,
		persist: persist,
		notify:  notify,
		turn:    make(chan struct{}, 1),
		undone:  func() {},
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
}

func (w *writer) stats() WriterStats {
	return WriterStats{Commits: w.commits.Load(), Requests: w.requests.Load(), MaxClaimWait: w.maxWait.Load()}
}

// do queues a request and waits for its outcome. While it waits in the queue
// (for a lock that another process holds, say) the end of ctx ends it; once the
// writer has taken it up, the outcome is waited for, so that nothing happens
// without the caller learning of it.
func (w *writer) do(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.ctx, r.done = ctx, make(chan struct{})
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return gobridge.ErrClosed
	}
	r.since = w.commits.Load()
	w.queue[r.class] = append(w.queue[r.class], r)
	w.mu.Unlock()
	w.signal()
	select {
	case <-r.done:
	case <-ctx.Done():
		if r.state.CompareAndSwap(queued, abandoned) {
			w.signal()
			return ctx.Err()
		}
		<-r.done
	}
	return r.err
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// lookNow has the goroutine look at once for what others have committed.
func (w *writer) lookNow() {
	w.asked.Store(true)
	w.signal()
}

// close ends the goroutine after the transaction it is in.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	<-w.stopped
}

// run is the goroutine. Its context does not end: no transaction is cut short.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	for {
		w.mu.Lock()
		closed, work := w.closed, w.waiting()
		w.mu.Unlock()
		switch {
		case closed:
			w.drain(gobridge.ErrClosed)
			w.drop()
			return
		case work:
			w.transact(ctx)
			if w.asked.Load() || time.Since(w.polledAt) >= pollInterval {
				w.poll(ctx)
			}
			continue
		case w.asked.Load():
			w.poll(ctx)
		}
		if !w.notify.watched() {
			<-w.wake
			continue
		}
		poll.Reset(pollInterval)
		select {
		case <-w.wake:
		case <-poll.C:
			w.poll(ctx)
		}
	}
}

// waiting prunes what was abandoned and reports whether anything is left. The
// caller holds mu.
func (w *writer) waiting() bool {
	left := false
	for c, requests := range w.queue {
		kept := requests[:0]
		for _, r := range requests {
			if r.state.Load() == queued {
				kept = append(kept, r)
			}
		}
		clear(requests[len(kept):])
		w.queue[c] = kept
		left = left || len(kept) > 0
	}
	return left
}

// take moves requests of a class from the queue to the caller.
func (w *writer) take(c class, calls int, bytes int64) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*request
	i := 0
	for ; i < len(w.queue[c]) && len(out) < calls && bytes > 0; i++ {
		r := w.queue[c][i]
		if !r.state.CompareAndSwap(queued, taken) {
			continue
		}
		if r.persist != nil {
			bytes -= r.persist.bytes
		}
		out = append(out, r)
	}
	kept := copy(w.queue[c], w.queue[c][i:])
	clear(w.queue[c][kept:])
	w.queue[c] = w.queue[c][:kept]
	return out
}

// drain answers everything that is queued.
func (w *writer) drain(err error) {
	for c := range classes {
		for _, r := range w.take(c, 1<<30, 1<<62) {
			w.answer(r, err)
		}
	}
}

func (w *writer) answer(r *request, err error) {
	r.err = err
	close(r.done)
}

// transact does one transaction with what is waiting.
func (w *writer) transact(ctx context.Context) {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if err := w.begin(ctx); err != nil {
		if !errors.Is(err, errNobody) {
			w.drain(err)
		}
		return
	}
	started := time.Now()
	before := w.commits.Load()
	t := &txn{ctx: ctx, Execer: w.stmts, touched: map[gobridge.Partition]struct{}{}}
	batch, err := w.fill(t, started)
	if err == nil {
		_, err = w.stmts.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		w.rollback(ctx)
		w.redo(ctx, batch)
		return
	}
	w.committed(batch, before, t)
}

// fill runs the waiting requests in a transaction and returns those that it
// took. If it fails, the last of them may not have been run.
func (w *writer) fill(t *txn, started time.Time) ([]*request, error) {
	batch, err := w.runAll(t, w.take(urgent, 1<<30, 1<<62), nil)
	if err != nil {
		return batch, err
	}
	// Whoever was woken by the last commit gets the chance to queue the next
	// call, so that it shares this transaction.
	runtime.Gosched()
	persists := w.take(persisting, maxPersistCalls, maxPersistBytes)
	batch = append(batch, persists...)
	if err := w.runPersists(t, persists); err != nil {
		return batch, err
	}
	if time.Since(started) < maxTransaction {
		if batch, err = w.runAll(t, w.take(background, 1, 1), batch); err != nil {
			return batch, err
		}
	}
	return w.runAll(t, w.take(urgent, 1<<30, 1<<62), batch)
}

func (w *writer) runAll(t *txn, requests, batch []*request) ([]*request, error) {
	batch = append(batch, requests...)
	for _, r := range requests {
		if err := r.run(t); err != nil {
			return batch, err
		}
	}
	return batch, nil
}

func (w *writer) runPersists(t *txn, requests []*request) error {
	if len(requests) == 0 {
		return nil
	}
	calls := make([]*persistCall, len(requests))
	for i, r := range requests {
		calls[i] = r.persist
	}
	return w.persist(t, calls)
}

// committed answers the requests of a transaction.
func (w *writer) committed(batch []*request, before int64, t *txn) {
	w.commits.Add(1)
	w.requests.Add(int64(len(batch)))
	for _, r := range batch {
		if r.class == urgent && before-r.since > w.maxWait.Load() {
			w.maxWait.Store(before - r.since)
		}
		w.answer(r, nil)
	}
	w.notify.tell(t.touched)
}

// redo runs the requests of a failed transaction one by one, so that only those
// fail that must. If a persist finds no room, or no disk, the others that
// persist would not either.
func (w *writer) redo(ctx context.Context, batch []*request) {
	var noRoom error
	for _, r := range batch {
		if r.persist != nil && noRoom != nil {
			w.answer(r, noRoom)
			continue
		}
		err := w.alone(ctx, r)
		if err != nil {
			if c := code(err); c == sqlite3.SQLITE_FULL || c == sqlite3.SQLITE_IOERR {
				w.full.Store(true)
				if r.persist != nil {
					noRoom = err
				}
			}
			w.answer(r, err)
		}
	}
}

// alone runs one request in a transaction of its own and answers it, unless it
// returns an error.
func (w *writer) alone(ctx context.Context, r *request) error {
	if err := w.beginWhile(ctx, func() bool { return r.ctx.Err() == nil }); err != nil {
		if errors.Is(err, errNobody) {
			err = r.ctx.Err()
		}
		return err
	}
	before := w.commits.Load()
	t := &txn{ctx: ctx, Execer: w.stmts, touched: map[gobridge.Partition]struct{}{}}
	var err error
	if r.persist != nil {
		err = w.persist(t, []*persistCall{r.persist})
	} else {
		err = r.run(t)
	}
	if err == nil {
		_, err = w.stmts.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		w.rollback(ctx)
		return err
	}
	w.committed([]*request{r}, before, t)
	return nil
}

// errNobody says that nobody waits any more.
var errNobody = errors.New("nobody waits")

// begin begins a transaction. It waits for a lock that others hold as long as
// somebody waits for the outcome.
func (w *writer) begin(ctx context.Context) error {
	return w.beginWhile(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.closed && w.waiting()
	})
}

func (w *writer) beginWhile(ctx context.Context, wanted func() bool) error {
	pause := 100 * time.Microsecond
	for {
		err := w.ready(ctx)
		if err == nil {
			if _, err = w.stmts.ExecContext(ctx, "BEGIN IMMEDIATE"); err == nil {
				return nil
			}
		}
		if !locked(err) {
			w.rollback(ctx)
			return err
		}
		if !wanted() {
			return errNobody
		}
		time.Sleep(pause)
		pause = min(2*pause, maxLockPause)
	}
}

// ready makes sure that there is a connection.
func (w *writer) ready(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.connect(ctx)
	if err != nil {
		return err
	}
	w.conn, w.stmts = conn, newPrepared(conn)
	w.undone()
	return nil
}

// rollback undoes a transaction, which SQLite may have done by itself. If it
// can't be undone, the connection is given up, which undoes it too.
func (w *writer) rollback(ctx context.Context) {
	if w.conn == nil {
		return
	}
	w.undone()
	_, err := w.conn.ExecContext(ctx, "ROLLBACK")
	if err != nil && code(err) != sqlite3.SQLITE_ERROR { // SQLITE_ERROR: no transaction is active
		w.drop()
	}
}

// drop closes the connection, which must not go back into a pool that others use.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	w.stmts.Close()
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = w.conn.Close()
	w.conn, w.stmts, w.dataVersion = nil, nil, 0 // each connection counts for itself
}

// poll looks whether others have committed, and tells of what is ready then. The
// data version does not change with the writer's own commits, for it looks from its
// own connection.
func (w *writer) poll(ctx context.Context) {
	asked := w.asked.Swap(false)
	if !w.notify.watched() {
		return
	}
	w.polledAt = time.Now()
	ready, err := w.look(ctx, asked)
	switch {
	case err == nil:
		w.notify.tell(ready)
	case asked:
		w.notify.tellAny()
	} // else whatever it is, the next transaction will tell
}

// look returns the partitions that have something ready, nil if nobody else has
// committed since the last look. The first one counts too: something may have come
// since somebody registered.
func (w *writer) look(ctx context.Context, sure bool) (map[gobridge.Partition]struct{}, error) {
	if err := w.ready(ctx); err != nil {
		return nil, err
	}
	var v int64
	if _, err := queryOne(ctx, w.stmts, "PRAGMA data_version", nil, &v); err != nil {
		return nil, err
	}
	if v == w.dataVersion && !sure {
		return nil, nil
	}
	ready, err := readyPartitions(ctx, w.stmts)
	if err == nil {
		w.dataVersion = v // else the next look finds that it has changed
	}
	return ready, err
}
