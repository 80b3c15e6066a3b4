package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

const (
	shards    = 16
	leaseTerm = 5 * time.Second
	// takeoverBound is how long the partitions of a process that dies are without an
	// owner at most: its term, two looks of the others, and what the calls take.
	takeoverBound = leaseTerm + 2*leaseTerm/10 + 50*time.Millisecond
)

// crowd is several processes that share the partitions of one route.
type crowd struct {
	*testing.T
	store *memory.Store
	route bridge.Route // without its sender
	front *bridge.RouteHandle
	dest  *target
	// silent has lease stores that don't tell of changes.
	silent bool

	takes func() time.Duration // a send

	mu       sync.Mutex
	newest   map[gobridge.Partition]gobridge.Token // that has begun to send
	acquired []string                              // partitions, as they are acquired
	sent     int                                   // messages of each key
}

// process is one of them.
type process struct {
	crowd  *crowd
	name   string
	stop   context.CancelFunc
	done   chan error
	cut    atomic.Bool              // the store and the leases hang
	mended atomic.Pointer[chan any] // closed when they are back
	dead   atomic.Bool              // nothing it does has an effect
	wrong  atomic.Int64             // how wrong its clock is
	slow   atomic.Bool              // its next send takes five seconds
}

// now is its clock.
func (p *process) now() time.Time { return time.Now().Add(time.Duration(p.wrong.Load())) }

func inCrowd(t *testing.T, f func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, store: memory.New(memory.Options{}), dest: &target{}, newest: map[gobridge.Partition]gobridge.Token{},
			takes: func() time.Duration { return 5 * time.Millisecond }}
		c.route = bridge.Route{Name: "r", Partitions: shards}
		b, err := bridge.New(c.store, c.options(nil))
		if err != nil {
			t.Fatal(err)
		}
		c.front = b.Route("r")
		f(c)
	})
}

func (c *crowd) options(p *process) bridge.Options {
	r := c.route
	r.Bindings = []bridge.Binding{{Name: "b", Sender: gobridge.HandlerFunc(c.dest.one), Retry: bridge.Retry{Attempts: 1 << 30}}}
	opts := bridge.Options{Routes: []bridge.Route{r}, LeaseTerm: leaseTerm}
	if p != nil {
		opts.Owner, opts.Observer, opts.Now = p.name, p, p.now
		opts.Routes[0].Bindings[0].Sender = gobridge.HandlerFunc(p.send)
	}
	return opts
}

// join starts a process.
func (c *crowd) join(name string) *process {
	c.Helper()
	p := &process{crowd: c, name: name, done: make(chan error, 1)}
	opts := c.options(p)
	leases := &frailLeases{c.store.Leases().(*memory.Leases).Handle(p.now), p}
	opts.Leases = tellingLeases{leases}
	if c.silent {
		opts.Leases = leases
	}
	b, err := bridge.New(&frailStore{Store: c.store.Handle(p.now), p: p}, opts)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	p.stop = cancel
	go func() { p.done <- b.Run(ctx) }()
	return p
}

// leave stops it as SIGTERM does.
func (p *process) leave() {
	p.stop()
	if err := <-p.done; err != nil {
		p.crowd.Errorf("%s ended with %v", p.name, err)
	}
}

// kill takes it away from one moment to the next.
func (p *process) kill() {
	p.dead.Store(true)
	p.mend()
	p.stop()
	go func() { <-p.done }() //nolint:errcheck // whatever it says
}

// cutOff makes its store and leases hang until they are mended.
func (p *process) cutOff() {
	if p.cut.Load() {
		return
	}
	back := make(chan any)
	p.mended.Store(&back)
	p.cut.Store(true)
}

func (p *process) mend() {
	if p.cut.Swap(false) {
		close(*p.mended.Load())
	}
}

// reach waits while the process is cut off, and fails if it is dead.
func (p *process) reach(ctx context.Context) error {
	if p.cut.Load() {
		select {
		case <-*p.mended.Load():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if p.dead.Load() {
		return errFault
	}
	return nil
}

// send is its destination, which is everybody's.
func (p *process) send(ctx context.Context, d gobridge.Delivery) error {
	if p.dead.Load() {
		return errFault
	}
	c := p.crowd
	c.mu.Lock()
	if newest := c.newest[d.Partition]; newest.Version > d.Token.Version {
		c.Errorf("%s sends %s under %s when %s has begun to", p.name, d.Envelope.ID, d.Token, newest)
	}
	c.newest[d.Partition] = d.Token
	c.mu.Unlock()
	takes := c.takes()
	if p.slow.Swap(false) {
		takes = 5 * time.Second
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.dead.Load() {
		return errFault
	}
	return c.dest.one(ctx, d)
}

// Observe implements bridge.Observer.
func (p *process) Observe(_ context.Context, e bridge.Event) {
	if e.Kind == bridge.EventAcquired && !p.dead.Load() {
		p.crowd.mu.Lock()
		defer p.crowd.mu.Unlock()
		p.crowd.acquired = append(p.crowd.acquired, string(e.Partition))
	}
}

// frailStore and frailLeases are those of a process that may be dead or cut off.
type frailStore struct {
	gobridge.Store
	p *process
}

func (s *frailStore) Claim(ctx context.Context, r gobridge.ClaimRequest) ([]gobridge.Record, error) {
	if err := s.p.reach(ctx); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, r)
}

func (s *frailStore) Complete(ctx context.Context, t gobridge.Token, c []gobridge.Completion) error {
	if err := s.p.reach(ctx); err != nil {
		return err
	}
	return s.Store.Complete(ctx, t, c)
}

func (s *frailStore) Release(ctx context.Context, t gobridge.Token, r []gobridge.Release) error {
	if err := s.p.reach(ctx); err != nil {
		return err
	}
	return s.Store.Release(ctx, t, r)
}

func (s *frailStore) Stats(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Stats, error) {
	if err := s.p.reach(ctx); err != nil {
		return nil, err
	}
	return s.Store.Stats(ctx, p...)
}

type frailLeases struct {
	inner *memory.Leases
	p     *process
}

// tellingLeases tell of changes.
type tellingLeases struct{ *frailLeases }

func (l tellingLeases) Notify(f func(gobridge.Partition)) (stop func()) {
	return l.inner.Notify(f)
}

func (l *frailLeases) Acquire(ctx context.Context, r gobridge.AcquireRequest) (gobridge.Lease, error) {
	if err := l.p.reach(ctx); err != nil {
		return gobridge.Lease{}, err
	}
	return l.inner.Acquire(ctx, r)
}

func (l *frailLeases) Renew(ctx context.Context, leases []gobridge.Lease) ([]gobridge.Lease, error) {
	if err := l.p.reach(ctx); err != nil {
		return nil, err
	}
	return l.inner.Renew(ctx, leases)
}

func (l *frailLeases) Release(ctx context.Context, lease gobridge.Lease) error {
	if err := l.p.reach(ctx); err != nil {
		return err
	}
	return l.inner.Release(ctx, lease)
}

func (l *frailLeases) Leases(ctx context.Context) ([]gobridge.Lease, error) {
	if err := l.p.reach(ctx); err != nil {
		return nil, err
	}
	return l.inner.Leases(ctx)
}

func (c *crowd) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// publish publishes one more message of each of n keys.
func (c *crowd) publish(keys int) {
	c.Helper()
	c.sent++
	for k := range keys {
		e := messaging.Envelope{ID: fmt.Sprintf("k%d-%d", k, c.sent), OrderingKey: fmt.Sprintf("k%d", k)}
		if _, err := c.front.Publish(c.Context(), e); err != nil {
			c.Fatal(err)
		}
	}
}

// arrived checks that everything has arrived, first deliveries in order.
func (c *crowd) arrived(keys int) {
	c.Helper()
	for k := range keys {
		var want []string
		for i := 1; i <= c.sent; i++ {
			want = append(want, fmt.Sprintf("k%d-%d", k, i))
		}
		if got := firsts(c.dest, fmt.Sprintf("k%d", k)); !slices.Equal(got, want) {
			c.Errorf("key k%d first arrived as %d: %v", k, len(got), got)
		}
	}
}

// owners returns how many partitions each process has.
func (c *crowd) owners() map[string]int {
	c.Helper()
	leases, err := c.store.Leases().Leases(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	out := map[string]int{}
	for _, l := range leases {
		if !l.Released && !strings.HasPrefix(string(l.Partition), "~") {
			out[l.Token.Owner]++
		}
	}
	return out
}

// even checks that all partitions are spread over n processes.
func (c *crowd) even(n int) {
	c.Helper()
	owners := c.owners()
	sum := 0
	for _, has := range owners {
		sum += has
		if has < shards/n || has > (shards+n-1)/n {
			c.Errorf("%d processes have %v of %d partitions", n, owners, shards)
			return
		}
	}
	if sum != shards || len(owners) != min(n, shards) {
		c.Errorf("%d processes have %v of %d partitions", n, owners, shards)
	}
}

// acquisitions returns how many leases have been acquired since it was last asked.
func (c *crowd) acquisitions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.acquired)
	c.acquired = nil
	return n
}

func TestProcessesShareEvenlyAndFewPartitionsMove(t *testing.T) {
	for name, silent := range map[string]bool{"told of changes": false, "looking": true} {
		t.Run(name, func(t *testing.T) { inCrowd(t, func(c *crowd) { c.silent = silent; c.shareEvenly() }) })
	}
}

func (c *crowd) shareEvenly() {
	var all []*process
	for n := 1; n <= 5; n++ {
		all = append(all, c.join(fmt.Sprint("p", n)))
		c.after(leaseTerm / 2)
		c.even(n)
		want := shards / n
		if n == 1 {
			want = shards
		}
		if got := c.acquisitions(); got != want {
			c.Errorf("when process %d came %d partitions moved, want %d", n, got, want)
		}
		c.publish(40)
		c.after(time.Second)
	}
	for n := 4; n >= 1; n-- {
		p := all[0]
		all = all[1:]
		had := c.owners()[p.name]
		p.leave()
		c.after(50 * time.Millisecond)
		c.even(n)
		if got := c.acquisitions(); got != had {
			c.Errorf("when a process with %d partitions left, %d moved", had, got)
		}
		c.publish(40)
		c.after(time.Second)
	}
	c.arrived(40)
	for _, d := range c.dest.taken() {
		if d.Attempt != 1 {
			c.Errorf("%s was delivered as attempt %d", d.Envelope.ID, d.Attempt)
		}
	}
	all[0].leave()
}

func TestTakeoverOfADeadProcess(t *testing.T) {
	for _, how := range []string{"killed", "cut off"} {
		t.Run(how, func(t *testing.T) {
			inCrowd(t, func(c *crowd) {
				a, b, victim := c.join("a"), c.join("b"), c.join("victim")
				c.after(3 * time.Second)
				c.even(3)
				for i := range 20 {
					c.publish(40)
					c.after(100 * time.Millisecond)
					if i == 10 && how == "killed" {
						victim.kill()
					} else if i == 10 {
						victim.cutOff()
					}
				}
				c.after(takeoverBound - time.Second + 50*time.Millisecond)
				if owners := c.owners(); owners["victim"] != 0 {
					t.Errorf("%s after its death the victim has %d partitions: %v", takeoverBound, owners["victim"], owners)
				}
				c.even(2)
				c.after(time.Second)
				c.arrived(40)
				survivors := []*process{a, b}
				if how == "cut off" { // it comes back as if nothing had been
					victim.mend()
					c.after(leaseTerm)
					c.even(3)
					survivors = append(survivors, victim)
				}
				leases, _ := c.store.Leases().Leases(c.Context())
				held := 0
				for _, l := range leases {
					if strings.HasPrefix(string(l.Partition), "~member/") && !l.Released {
						held++
					}
				}
				if held != len(survivors) {
					t.Errorf("%d members hold %d slots: %v", len(survivors), held, leases)
				}
				for _, p := range survivors {
					p.leave()
				}
			})
		})
	}
}

// One partition that is slow to finish holds up no other when its process leaves.
func TestLeavingWithASlowSend(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		a, b := c.join("a"), c.join("b")
		c.after(leaseTerm)
		c.even(2)
		a.slow.Store(true)
		c.publish(40)
		c.after(1100 * time.Millisecond) // they look once a second
		left := make(chan any)
		go func() {
			defer close(left)
			a.leave()
		}()
		c.after(100 * time.Millisecond)
		if owners := c.owners(); owners["a"] != 1 || owners["b"] != shards-1 {
			t.Errorf("while one send goes on they have %v", owners)
		}
		<-left
		c.after(50 * time.Millisecond)
		c.even(1)
		c.after(2 * time.Second)
		c.arrived(40)
		b.leave()
	})
}

// A process that cannot read the outbox must not keep from others what would
// fall to it.
func TestWhoCannotReadTheOutboxIsNoMember(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		a := c.join("a")
		c.after(time.Second)
		blind := &process{crowd: c, name: "blind", done: make(chan error, 1)}
		opts := c.options(blind)
		b, err := bridge.New(&unreadable{c.store.Handle(nil)}, opts)
		if err != nil {
			t.Fatal(err)
		}
		opts.Leases = c.store.Leases()
		ctx, cancel := context.WithCancel(c.Context())
		blind.stop = cancel
		go func() { blind.done <- b.Run(ctx) }()
		c.after(time.Minute)
		c.even(1)
		a.leave()
		cancel()
		if err := <-blind.done; err != nil {
			t.Error(err)
		}
	})
}

type unreadable struct{ *memory.Store }

func (u *unreadable) Stats(ctx context.Context, p ...gobridge.Partition) ([]gobridge.Stats, error) {
	if len(p) > 0 {
		return nil, errFault
	}
	return u.Store.Stats(ctx)
}

// TestOnlyWhoServesABindingTakesItsPartitions has processes with different routes.
func TestOnlyWhoServesABindingTakesItsPartitions(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		both := c.join("both")
		c.after(time.Second)
		other := c.options(nil)
		other.Owner = "other"
		other.Routes[0].Name = "elsewhere"
		b, err := bridge.New(c.store.Handle(nil), other)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: c.T, store: c.store}
		stop := w.run(b)
		c.after(time.Minute)
		if owners := c.owners(); owners["both"] != shards || owners["other"] != shards {
			t.Errorf("with a route each they have %v", owners)
		}
		stop()
		both.leave()
	})
}

// TestCrowd has processes come, go, die, and lose their store, and their clocks
// jump, all at random.
func TestCrowd(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCrowd(t, func(c *crowd) { c.live(rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func (c *crowd) live(rng *rand.Rand) {
	const keys, steps = 20, 60
	// So long that there is always something claimed that has not been sent: what a
	// former owner must not send.
	c.takes = func() time.Duration { return time.Duration(rand.IntN(1000)) * time.Millisecond }
	var alive []*process
	born := 0
	for range steps {
		switch pick := func() *process { return alive[rng.IntN(len(alive))] }; {
		case len(alive) < 3 || len(alive) < 5 && rng.IntN(3) == 0:
			born++
			alive = append(alive, c.join(fmt.Sprint("p", born)))
		case rng.IntN(4) == 0:
			p := pick()
			alive = slices.DeleteFunc(alive, func(q *process) bool { return p == q })
			if rng.IntN(2) == 0 || p.cut.Load() {
				p.kill()
			} else {
				p.leave()
			}
		case rng.IntN(2) == 0:
			pick().cutOff()
		case rng.IntN(2) == 0:
			pick().wrong.Store(int64(time.Duration(rng.IntN(1000)-500) * time.Hour))
		default:
			for _, p := range alive {
				p.mend()
			}
		}
		for range 3 {
			c.publish(keys)
		}
		c.after(time.Duration(rng.IntN(3000)) * time.Millisecond)
	}
	for _, p := range alive {
		p.mend()
	}
	c.after(2*takeoverBound + 5*time.Minute)
	c.even(len(alive))
	c.arrived(keys)
	c.acquisitions()
	c.after(5 * time.Minute)
	if n := c.acquisitions(); n > 0 {
		c.Errorf("with nobody coming or going %d partitions moved", n)
	}
	for _, p := range alive {
		p.leave()
	}
	c.after(time.Minute)
}
