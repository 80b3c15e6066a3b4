package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gobridge"
)

// ModelOptions configure [Model]. A field that is zero is taken from the
// environment, STORETEST_SEED, STORETEST_SEEDS and STORETEST_STEPS, or else has
// a small default.
type ModelOptions struct {
	// Seed is the first seed. Every seed is a run of its own, and always the same one.
	Seed uint64
	// Seeds is how many runs there are; with -short two at most.
	Seeds int
	// Steps is how many operations a run has.
	Steps int
}

func (o ModelOptions) withDefaults() ModelOptions {
	if o.Seed == 0 {
		o.Seed = uint64(fromEnvironment("STORETEST_SEED", 1))
	}
	if o.Seeds == 0 {
		o.Seeds = fromEnvironment("STORETEST_SEEDS", 4)
	}
	if o.Steps == 0 {
		o.Steps = fromEnvironment("STORETEST_STEPS", 400)
	}
	if testing.Short() {
		o.Seeds = min(o.Seeds, 2)
	}
	return o
}

func fromEnvironment(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// Model runs random operations of several processes on a new database and on a
// plain model side by side, and compares every answer and every record. The
// processes crash and forget what they held, take over from each other, have
// clocks that go back and forth, and get errors for calls that were made and
// for calls that were not. A failure prints the seed, which repeats the run,
// and the last operations.
func Model(t *testing.T, backend Backend, options ModelOptions) {
	options = options.withDefaults()
	for i := range options.Seeds {
		seed := options.Seed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runModel(t, backend, seed, options.Steps) })
	}
}

// modelRun is one run.
type modelRun struct {
	*fixture
	seed      uint64
	rng       *rand.Rand
	model     *model
	processes []*modelProcess
	versions  map[gobridge.Partition]int64
	// fault is what happens to the next call through a process's store.
	fault Fault
	// named counts IDs given out; sent are records to persist again.
	named int
	sent  []gobridge.Record
	trace []string
}

// modelProcess is a simulated process with its clock and its handle.
type modelProcess struct {
	name   string
	clock  *clock
	store  gobridge.Store
	tokens map[gobridge.Partition]gobridge.Token
	held   map[gobridge.Ref]bool
}

func modelPartitions() []gobridge.Partition {
	return []gobridge.Partition{"orders/mail/0", "orders/mail/1", "orders/crm/0"}
}

func runModel(tb testing.TB, backend Backend, seed uint64, steps int) {
	f := newFixture(tb, backend, func(o *Options) {
		o.MaxDead = 5
		o.Retention = 30 * time.Minute
		o.DeadRetention = 50 * time.Minute
	})
	r := &modelRun{
		fixture:  f,
		seed:     seed,
		rng:      rand.New(rand.NewPCG(seed, seed)),
		model:    newModel(f.options),
		versions: map[gobridge.Partition]int64{},
	}
	for i := range 3 {
		p := &modelProcess{name: fmt.Sprintf("p%d", i+1)}
		handle, c := f.another(time.Duration(i) * time.Minute)
		p.clock = c
		p.store = Faulty(handle, func(string) Fault { return r.fault })
		p.forget()
		r.processes = append(r.processes, p)
	}
	for step := range steps {
		r.step()
		if step%20 == 19 {
			r.compareAll()
		}
	}
	r.finish()
	r.compareAll()
}

func (p *modelProcess) forget() {
	p.tokens = map[gobridge.Partition]gobridge.Token{}
	p.held = map[gobridge.Ref]bool{}
}

// failf ends the run with what it takes to repeat it.
func (r *modelRun) failf(format string, args ...any) {
	r.Helper()
	trace := r.trace
	if len(trace) > 25 {
		trace = trace[len(trace)-25:]
	}
	r.Fatalf("seed %d, after %d operations: %s\nrepeat with STORETEST_SEED=%d STORETEST_SEEDS=1; the last operations:\n  %s",
		r.seed, len(r.trace), fmt.Sprintf(format, args...), r.seed, strings.Join(trace, "\n  "))
}

func (r *modelRun) tracef(p *modelProcess, format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf("%s at %s: %s", p.name, p.clock.Now().Format("02 15:04:05.000"), fmt.Sprintf(format, args...)))
}

// chance is true n times out of hundred.
func (r *modelRun) chance(n int) bool { return r.rng.IntN(100) < n }

// attempt makes a call in the store and in the model, if it happens, and
// compares the answer if it comes through. Call and apply return their errors.
// It reports whether the answer came through.
func (r *modelRun) attempt(what string, p *modelProcess, call func(context.Context) error, apply func() error) bool {
	r.Helper()
	r.fault = NoFault
	if r.chance(12) {
		r.fault = FailBefore + Fault(r.rng.IntN(2))
	}
	fault := r.fault
	err := call(r.Context())
	r.fault = NoFault
	r.tracef(p, "%s%s → %v", what, [...]string{"", " (fails before)", " (fails after)"}[fault], err)
	var want error
	if fault != FailBefore {
		want = apply()
	}
	if fault != NoFault {
		want = ErrInjected
	}
	switch {
	case errors.Is(want, errEither) && (err == nil || errors.Is(err, gobridge.ErrStaleFencingToken)):
	case want == nil && err != nil, want != nil && !errors.Is(err, want):
		r.failf("%s returned error %v, want %v", what, err, want)
	}
	return fault == NoFault
}

// compareAll compares every record and all figures.
func (r *modelRun) compareAll() {
	r.Helper()
	for _, want := range r.model.records {
		r.compare(want)
		query := gobridge.ExplainQuery{Partition: want.Partition, Binding: want.Binding, EnvelopeID: want.Envelope.ID}
		if got, cause := r.explainBy(query), r.model.cause(want, r.clock.Now()); got.Cause != cause {
			r.failf("record %s is explained as %q, want %q: %s", want.Ref(), got.Cause, cause, summary(&want.Record))
		}
	}
	if got := len(r.controls()); got != len(r.model.controls) {
		r.failf("%d controls are listed, want %d", got, len(r.model.controls))
	}
	for p, part := range r.model.parts {
		got := r.stats(p)
		want := gobridge.Stats{Partition: p, Fence: part.fence, LastSeq: got.LastSeq, NewestStamp: part.newest}
		for _, m := range r.model.sorted(p, func(*modelRecord) bool { return true }) {
			switch m.State {
			case gobridge.StatePending:
				if want.Pending++; want.Pending == 1 {
					want.OldestPending = m.StoredAt
				}
			case gobridge.StateClaimed:
				want.Claimed++
			case gobridge.StateDead:
				want.Dead++
				want.DeadBytes += contentSize(&m.Record)
			}
		}
		got.Condition, got.Retries = want.Condition, want.Retries // cases of their own see to those
		if got != want || got.LastSeq < part.lastSeq {
			r.failf("Stats is\n%+v, want\n%+v", got, want)
		}
		if n, err := r.store.CountPending(r.Context(), p, 10_000); err != nil || int64(n) != want.Pending {
			r.failf("CountPending of %s is %d (error %v), want %d", p, n, err, want.Pending)
		}
		dead := r.model.sorted(p, func(m *modelRecord) bool { return m.State == gobridge.StateDead })
		if got := r.deadIDs(gobridge.Filter{Partition: p}, 3); !slices.Equal(got, idsOfModel(dead)) {
			r.failf("the dead letters of %s are %s, want %s", p, joined(got), joined(idsOfModel(dead)))
		}
	}
}

// compare compares one record with what the store has.
func (r *modelRun) compare(want *modelRecord) {
	r.Helper()
	got, err := r.store.Get(r.Context(), want.Ref())
	if err != nil {
		r.failf("record %s is lost: %v; it should be %s", want.Ref(), err, want.State)
	}
	if a, b := summary(&got), summary(&want.Record); a != b {
		r.failf("record %s is\n%s, want\n%s", want.Ref(), a, b)
	}
}

// summary writes down what the contract says of a record in its state.
func summary(r *gobridge.Record) string {
	at := func(t time.Time) string { return t.UTC().Format("02 15:04:05.000000000") }
	s := fmt.Sprintf("%s key %q age %s/%d stored %s replays %d attempts %d redrives %d hash %x", r.State, r.Envelope.OrderingKey,
		at(r.CreatedAt), r.Seq, at(r.StoredAt), r.ReplayCount, r.Attempts, r.Redrives, r.ContentHash[:4])
	if !r.State.Ended() || r.State == gobridge.StateDead {
		s += fmt.Sprintf(" payload %q expires %s", r.Envelope.Payload, at(r.Envelope.ExpiresAt))
	}
	switch r.State {
	case gobridge.StatePending:
		s += fmt.Sprintf(" retry %s", at(r.RetryAt))
	case gobridge.StateClaimed:
		s += fmt.Sprintf(" by %s at %s unsettled %d", r.ClaimedBy, at(r.ClaimedAt), r.Unsettled)
	default:
		s += fmt.Sprintf(" ended %s for %q", at(r.EndedAt), r.Reason)
	}
	return s
}
