package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// part and binding are where a case's records go unless it says otherwise.
const (
	route   = "orders"
	binding = "mail"
	part    = gobridge.Partition("orders/mail/0")
)

// start is when every case begins; it has nanoseconds, for stores keep them.
var start = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// clock is a clock that a case moves by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock, back if d is negative.
func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is what a case works with: a new database and one handle on it.
type fixture struct {
	testing.TB
	options Options
	clock   *clock
	db      Database
	store   gobridge.Store
}

func newFixture(tb testing.TB, backend Backend, settings func(*Options)) *fixture {
	tb.Helper()
	c := &clock{now: start}
	options := defaults(c.Now)
	if settings != nil {
		settings(&options)
	}
	db := backend.Open(tb, options)
	return &fixture{TB: tb, options: options, clock: c, db: db, store: db.Store(tb, c.Now)}
}

// another returns another handle, with a clock of its own that starts at the
// case's clock plus ahead.
func (f *fixture) another(ahead time.Duration) (gobridge.Store, *clock) {
	f.Helper()
	c := &clock{now: f.clock.Now().Add(ahead)}
	return f.db.Store(f.TB, c.Now), c
}

// on returns a fixture that works through another handle.
func (f *fixture) on(store gobridge.Store) *fixture {
	g := *f
	g.store = store
	return &g
}

// token is the fencing token of a version.
func token(version int64) gobridge.Token {
	return gobridge.Token{Owner: fmt.Sprintf("owner-%d", version), Version: version}
}

// ref is the identity of a record in part.
func ref(id string) gobridge.Ref {
	return gobridge.Ref{Partition: part, EnvelopeID: id, Binding: binding}
}

func refs(ids ...string) []gobridge.Ref {
	out := make([]gobridge.Ref, len(ids))
	for i, id := range ids {
		out[i] = ref(id)
	}
	return out
}

// with changes a record that is to be persisted.
type with func(*gobridge.Record)

// record makes a record of part whose content its ID decides.
func record(id string, changes ...with) gobridge.Record {
	r := gobridge.Record{
		Partition: part,
		Binding:   binding,
		Envelope:  messaging.Envelope{ID: id, Subject: "order.placed", Payload: []byte("payload of " + id)},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func key(k string) with          { return func(r *gobridge.Record) { r.Envelope.OrderingKey = k } }
func payload(p string) with      { return func(r *gobridge.Record) { r.Envelope.Payload = []byte(p) } }
func createdAt(t time.Time) with { return func(r *gobridge.Record) { r.CreatedAt = t } }
func notBefore(t time.Time) with { return func(r *gobridge.Record) { r.Envelope.NotBefore = t } }
func expiresAt(t time.Time) with { return func(r *gobridge.Record) { r.Envelope.ExpiresAt = t } }
func headers(pairs ...string) with {
	return func(r *gobridge.Record) {
		r.Envelope.Headers = messaging.Headers{}
		for i := 0; i+1 < len(pairs); i += 2 {
			r.Envelope.Headers[pairs[i]] = pairs[i+1]
		}
	}
}

// dead sends the record straight to the dead letters.
func dead() with {
	return func(r *gobridge.Record) { r.State, r.Reason, r.Error = gobridge.StateDead, gobridge.ReasonFull, "full" }
}

// in puts the record into another partition, whose middle part is its binding.
func in(p gobridge.Partition) with {
	return func(r *gobridge.Record) {
		r.Partition = p
		if _, b, _, ok := p.Split(); ok {
			r.Binding = b
		}
	}
}

// persist stores records in one call.
func (f *fixture) persist(records ...gobridge.Record) {
	f.Helper()
	if err := f.store.Persist(f.Context(), records); err != nil {
		f.Fatalf("Persist of %s: %v", idsOf(records), err)
	}
}

// persistEach stores records of a key, one call for each ID.
func (f *fixture) persistEach(k string, ids ...string) {
	f.Helper()
	for _, id := range ids {
		f.persist(record(id, key(k)))
	}
}

// request is a claim of part that says what is held.
func request(version int64, limit int, held ...string) gobridge.ClaimRequest {
	return gobridge.ClaimRequest{
		Partition: part, Token: token(version), Limit: limit, HeldKnown: true, Held: refs(held...),
	}
}

// claim claims from part, saying which records this process still holds.
func (f *fixture) claim(version int64, limit int, held ...string) []gobridge.Record {
	f.Helper()
	return f.claimBy(request(version, limit, held...))
}

// claimUntold claims from part without saying what is held.
func (f *fixture) claimUntold(version int64, limit int) []gobridge.Record {
	f.Helper()
	return f.claimBy(gobridge.ClaimRequest{Partition: part, Token: token(version), Limit: limit})
}

// claimBy claims, and checks what holds for every claim.
func (f *fixture) claimBy(request gobridge.ClaimRequest) []gobridge.Record {
	f.Helper()
	records, err := f.store.Claim(f.Context(), request)
	if err != nil {
		f.Fatalf("Claim of %d from %s by %s: %v", request.Limit, request.Partition, request.Token, err)
	}
	if len(records) > max(request.Limit, 0) {
		f.Fatalf("Claim of %d returned %d records", request.Limit, len(records))
	}
	for i := range records {
		if i > 0 && !records[i-1].Older(&records[i]) {
			f.Fatalf("Claim returned %s, not in ascending age", idsOf(records))
		}
	}
	return records
}

// complete ends claimed records of part as delivered.
func (f *fixture) complete(version int64, ids ...string) {
	f.Helper()
	if err := f.store.Complete(f.Context(), token(version), completions(ids...)); err != nil {
		f.Fatalf("Complete of %q by %s: %v", ids, token(version), err)
	}
}

func completions(ids ...string) []gobridge.Completion {
	out := make([]gobridge.Completion, len(ids))
	for i, id := range ids {
		out[i].Ref = ref(id)
	}
	return out
}

// release puts one claimed record of part back.
func (f *fixture) release(version int64, id string, tried gobridge.Tried, notBefore time.Time) {
	f.Helper()
	release := gobridge.Release{Ref: ref(id), Tried: tried, NotBefore: notBefore}
	if err := f.store.Release(f.Context(), token(version), []gobridge.Release{release}); err != nil {
		f.Fatalf("Release of %q by %s: %v", id, token(version), err)
	}
}

// bury moves claimed records of part to the dead letters.
func (f *fixture) bury(version int64, ids ...string) {
	f.Helper()
	if err := f.store.DeadLetter(f.Context(), token(version), burials(ids...)); err != nil {
		f.Fatalf("DeadLetter of %q by %s: %v", ids, token(version), err)
	}
}

func burials(ids ...string) []gobridge.Burial {
	out := make([]gobridge.Burial, len(ids))
	for i, id := range ids {
		out[i] = gobridge.Burial{
			Ref: ref(id), Tried: gobridge.Failed, Reason: gobridge.ReasonPermanent, Error: "no such customer",
		}
	}
	return out
}

// kill makes new dead letters of a key, oldest first.
func (f *fixture) kill(k string, ids ...string) {
	f.Helper()
	f.persistEach(k, ids...)
	f.claimExactly(1, len(ids), ids...)
	f.bury(1, ids...)
}

// claimExactly claims and requires these records, no more and in this order.
func (f *fixture) claimExactly(version int64, limit int, want ...string) []gobridge.Record {
	f.Helper()
	records := f.claim(version, limit)
	f.wantIDs(records, want...)
	return records
}

// sweep does a sweep of part.
func (f *fixture) sweep(version int64, limit int) gobridge.SweepResult {
	f.Helper()
	return f.sweepBy(gobridge.SweepRequest{Partition: part, Token: token(version), Limit: limit})
}

func (f *fixture) sweepBy(request gobridge.SweepRequest) gobridge.SweepResult {
	f.Helper()
	result, err := f.store.Sweep(f.Context(), request)
	if err != nil {
		f.Fatalf("Sweep of %s by %s: %v", request.Partition, request.Token, err)
	}
	return result
}

// get returns a record of part.
func (f *fixture) get(id string) gobridge.Record {
	f.Helper()
	return f.getRef(ref(id))
}

func (f *fixture) getRef(ref gobridge.Ref) gobridge.Record {
	f.Helper()
	r, err := f.store.Get(f.Context(), ref)
	if err != nil {
		f.Fatalf("Get of %s: %v", ref, err)
	}
	return r
}

// stats returns the figures of one partition.
func (f *fixture) stats(p gobridge.Partition) gobridge.Stats {
	f.Helper()
	all, err := f.store.Stats(f.Context(), p)
	if err != nil {
		f.Fatalf("Stats of %s: %v", p, err)
	}
	if len(all) != 1 || all[0].Partition != p {
		f.Fatalf("Stats of %s returned %+v, want one entry for it", p, all)
	}
	return all[0]
}

// wantState requires the state of records of part.
func (f *fixture) wantState(want gobridge.State, ids ...string) {
	f.Helper()
	for _, id := range ids {
		if got := f.get(id).State; got != want {
			f.Fatalf("record %q is %s, want %s", id, got, want)
		}
	}
}

// wantGone requires that the store does not know a record of part.
func (f *fixture) wantGone(id string) {
	f.Helper()
	f.wantGoneRef(ref(id))
}

func (f *fixture) wantGoneRef(ref gobridge.Ref) {
	f.Helper()
	r, err := f.store.Get(f.Context(), ref)
	if !errors.Is(err, gobridge.ErrNotFound) {
		f.Fatalf("Get of %s returned state %s and error %v, want ErrNotFound", ref, r.State, err)
	}
}

// wantIDs requires these records in this order.
func (f *fixture) wantIDs(got []gobridge.Record, want ...string) {
	f.Helper()
	if !slices.Equal(ids(got), want) {
		f.Fatalf("got records %q, want %q", ids(got), want)
	}
}

// wantSet requires these records in any order.
func (f *fixture) wantSet(got []gobridge.Record, want ...string) {
	f.Helper()
	have, need := ids(got), slices.Clone(want)
	slices.Sort(have)
	slices.Sort(need)
	if !slices.Equal(have, need) {
		f.Fatalf("got records %q, want %q", have, need)
	}
}

// wantErr requires an error that is target, and that says which operation failed.
func (f *fixture) wantErr(what string, err, target error) {
	f.Helper()
	if !errors.Is(err, target) {
		f.Fatalf("%s returned error %v, want %v", what, err, target)
	}
	var e *gobridge.Error
	if !errors.As(err, &e) || e.Op == "" {
		f.Fatalf("%s returned error %v, which wraps no *gobridge.Error that names the operation", what, err)
	}
}

// wantTime requires the same instant, to the nanosecond.
func (f *fixture) wantTime(what string, got, want time.Time) {
	f.Helper()
	if !got.Equal(want) {
		f.Fatalf("%s is %v, want %v", what, got, want)
	}
}

func ids(records []gobridge.Record) []string {
	out := make([]string, len(records))
	for i := range records {
		out[i] = records[i].Envelope.ID
	}
	return out
}

func idsOf(records []gobridge.Record) string {
	all := ids(records)
	if len(all) > 20 {
		return fmt.Sprintf("%d records from %q to %q", len(all), all[0], all[len(all)-1])
	}
	return "[" + strings.Join(all, " ") + "]"
}

// numbered returns n IDs, prefix-1 to prefix-n.
func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i+1)
	}
	return out
}
