package dynamodb

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge"
)

// Store is a handle on a table. It implements [gobridge.Store],
// [gobridge.Notifier], [gobridge.Quieter], [gobridge.Checker] and [gobridge.Leaser]. It starts no goroutines that
// outlive a call, so there is nothing to close.
type Store struct {
	api      API
	options  Options
	table    string
	now      func() time.Time
	log      *slog.Logger
	observer Observer
	sleep    func(context.Context, time.Duration) error

	// pace is how long sweeps rest for each page that they have read.
	pace time.Duration

	mu       sync.Mutex
	states   map[gobridge.Partition]*state
	watchers map[*watcher]struct{}

	controls   controlCache
	bell       bell
	health     health
	warnedKeys sync.Once
}

// state is what a handle remembers of a partition. Nothing in it is needed for
// being right: what is remembered wrongly costs another request.
type state struct {
	mu sync.Mutex
	// known says that the fence row exists.
	known bool
	// newest is the newest stamp that this handle has seen, so that a slow clock
	// need not find it out with every Persist.
	newest int64
	// keyed says that the last claim met an ordering key.
	keyed bool

	// quiet says that nothing is pending or claimed, as far as the last look went;
	// stirred is when this handle stored something last.
	quiet   bool
	stirred time.Time

	sweep  pass
	oldest oldestPending
}

// Open returns a handle on a table that [EnsureTable] has made. It looks at the
// table and refuses one that is not as it must be.
func Open(ctx context.Context, client API, options Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("open: the client is nil; pass a *dynamodb.Client")
	}
	options = options.withDefaults()
	s := &Store{
		api: client, options: options, table: options.Table, now: options.Now, log: options.Logger,
		observer: options.Observer, sleep: wait, pace: pagePace, states: map[gobridge.Partition]*state{},
	}
	if !options.SkipCheck {
		if err := CheckTable(ctx, client, options); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) state(p gobridge.Partition) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[p]
	if st == nil {
		st = &state{}
		s.states[p] = st
	}
	return st
}

// fail makes the error of an operation, unless it is one already.
func fail(op string, p gobridge.Partition, err error) error {
	var e *gobridge.Error
	var settle *gobridge.SettleError
	if err == nil || errors.As(err, &e) || errors.As(err, &settle) {
		return err
	}
	return &gobridge.Error{Op: op, Partition: p, Err: err}
}

// getRow reads a record, nil if there is none.
func (s *Store) getRow(ctx context.Context, c call, ref gobridge.Ref) (*row, error) {
	if ref.Partition == "" || ref.EnvelopeID == "" || ref.Binding == "" || len(ref.EnvelopeID) > limits.MaxID ||
		len(ref.Binding) > limits.MaxBinding || len(ref.Partition) > limits.MaxPartition {
		return nil, nil // such a record is never stored
	}
	out, err := s.getItem(ctx, c, &ddb.GetItemInput{
		Key: key(partitionKey(ref.Partition), recordKey(ref.EnvelopeID, ref.Binding)), ConsistentRead: yes(),
	})
	if err != nil || len(out.Item) == 0 {
		return nil, err
	}
	return parseRow(out.Item)
}

// getRows reads records, by their sort keys, whole or only some attributes of
// them. Those that don't exist are missing.
func (s *Store) getRows(ctx context.Context, c call, pk string, sks []string, projection string) (map[string]*row, error) {
	keys := make([]item, 0, len(sks))
	seen := map[string]bool{}
	for _, sk := range sks {
		if !seen[sk] {
			seen[sk] = true
			keys = append(keys, key(pk, sk))
		}
	}
	items, err := s.batchGet(ctx, c, keys, projection)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*row, len(items))
	for _, it := range items {
		r, err := parseRow(it)
		if err != nil {
			return nil, err
		}
		out[r.sk] = r
	}
	return out, nil
}

// each calls f for the numbers below n, several at a time, and waits for all.
func each(n int, f func(i int)) {
	const workers = 16
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, workers) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
