package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"gobridge"
)

func ageCases() []testCase {
	return []testCase{
		{name: "SeqGrowsAcrossHandles", run: seqGrowsAcrossHandles,
			why: "Seq breaks ties of age; it must grow whichever process allocates it, and over a restart."},
		{name: "SeqIsNeverGivenTwice", run: seqIsNeverGivenTwice,
			why: "Two records with one Seq have no order between them."},
		{name: "SeqFollowsTheCall", run: seqFollowsTheCall,
			why: "The records of one call are in the order in which the caller gave them."},
		{name: "StampNeverGoesBack", run: stampNeverGoesBack,
			why: "A clock that steps back an hour must not put later messages before earlier ones of their key."},
		{name: "StampFollowsTheFastestClock", run: stampFollowsTheFastestClock,
			why: "If one Persist was committed before another began, on whatever machine with whatever clock, their records are in that order."},
		{name: "StampMovesWithTheClock", run: stampMovesWithTheClock,
			why: "Records are stamped with the time; an age that stands still tells nobody how old a record is."},
		{name: "ExplicitCreatedAtIsKept", run: explicitCreatedAtIsKept,
			why: "A message moved from elsewhere keeps its age, to the nanosecond."},
		{name: "ExplicitCreatedAtRaisesTheStamp", run: explicitCreatedAtRaisesTheStamp,
			why: "What is persisted after a record with an explicit age must not become older than it."},
		{name: "CreatedAtTooFarAheadIsRefused", run: createdAtTooFarAheadIsRefused,
			why: "One record from the far future would drag every later stamp along."},
		{name: "DueTimesIgnoreAge", run: dueTimesIgnoreAge,
			why: "A wrong clock can shift due times and expiry only, and an age must shift neither."},
	}
}

func seqGrowsAcrossHandles(f *fixture) {
	second, _ := f.another(0)
	third, _ := f.another(0)
	handles := []gobridge.Store{f.store, second, third}
	last := int64(0)
	for i := range 12 {
		id := fmt.Sprintf("r-%d", i)
		g := f.on(handles[i%3])
		g.persist(record(id))
		seq := f.get(id).Seq
		if seq <= last {
			f.Fatalf("record %d, persisted through handle %d, has Seq %d after %d", i, i%3+1, seq, last)
		}
		last = seq
	}
	f.claim(1, 100)
	f.complete(1, numberedFrom0("r", 12)...)
	f.clock.Advance(f.options.Retention + time.Second)
	f.sweep(1, 100)
	late, _ := f.another(f.options.Retention)
	f.on(late).persist(record("late"))
	if seq := f.get("late").Seq; seq <= last {
		f.Fatalf("with the partition purged, a new handle gave Seq %d after %d", seq, last)
	}
}

func numberedFrom0(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}

func seqIsNeverGivenTwice(f *fixture) {
	const producers, calls = 8, 15
	second, _ := f.another(0)
	handles := []gobridge.Store{f.store, second}
	errs := make([]error, producers)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range calls {
				a, b := fmt.Sprintf("p%d-%d-a", p, i), fmt.Sprintf("p%d-%d-b", p, i)
				err := handles[p%2].Persist(f.Context(), []gobridge.Record{record(a), record(b)})
				errs[p] = errors.Join(errs[p], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatalf("Persist, many at a time: %v", err)
	}
	all := f.claim(1, 2*producers*calls)
	if len(all) != 2*producers*calls {
		f.Fatalf("claimed %d of %d records", len(all), 2*producers*calls)
	}
	seen := map[int64]string{}
	last := map[string]int64{}
	for _, r := range all {
		if other, ok := seen[r.Seq]; ok {
			f.Fatalf("records %q and %q both have Seq %d", other, r.Envelope.ID, r.Seq)
		}
		seen[r.Seq] = r.Envelope.ID
		producer := r.Envelope.ID[:2]
		if r.Seq <= last[producer] {
			f.Fatalf("record %q has Seq %d after %d", r.Envelope.ID, r.Seq, last[producer])
		}
		last[producer] = r.Seq
	}
}

func seqFollowsTheCall(f *fixture) {
	want := []string{"z", "y", "m", "a", "x", "b"}
	call := make([]gobridge.Record, len(want))
	for i, id := range want {
		call[i] = record(id)
	}
	f.persist(call...)
	last := int64(0)
	for _, id := range want {
		seq := f.get(id).Seq
		if seq <= last {
			f.Fatalf("record %q of the call has Seq %d after %d", id, seq, last)
		}
		last = seq
	}
	f.claimExactly(1, 10, want...)
}

func stampNeverGoesBack(f *fixture) {
	f.persistEach("k", "first")
	f.clock.Advance(-time.Hour)
	f.persistEach("k", "second")
	if first, second := f.get("first"), f.get("second"); second.CreatedAt.Before(first.CreatedAt) {
		f.Fatalf("persisted later, by a clock that was put back, and stamped %v after %v", second.CreatedAt, first.CreatedAt)
	}
	f.claimExactly(1, 10, "first", "second")
	// The stamp is a property of the partition: it outlives its records.
	f.complete(1, "first", "second")
	f.clock.Advance(f.options.Retention + 2*time.Hour)
	f.sweep(1, 10)
	f.wantGone("second")
	f.clock.Advance(-48 * time.Hour)
	f.persistEach("k", "third")
	if got := f.get("third").CreatedAt; got.Before(start) {
		f.Fatalf("with the partition purged, stamped %v, before the newest stamp %v", got, start)
	}
}

func stampFollowsTheFastestClock(f *fixture) {
	fast, _ := f.another(365 * 24 * time.Hour)
	slow, _ := f.another(-time.Hour)
	handles := []gobridge.Store{f.store, fast, slow}
	want := numberedFrom0("r", 9)
	var last time.Time
	for i, id := range want {
		f.on(handles[i%3]).persistEach("k", id)
		got := f.get(id).CreatedAt
		if got.Before(last) {
			f.Fatalf("record %d, persisted through handle %d, is stamped %v after %v", i, i%3+1, got, last)
		}
		last = got
	}
	f.claimExactly(1, 10, want...)
}

func stampMovesWithTheClock(f *fixture) {
	f.persist(record("a"))
	f.clock.Advance(1234567 * time.Nanosecond)
	f.persist(record("b"))
	f.wantTime("CreatedAt of the first record", f.get("a").CreatedAt, start)
	f.wantTime("CreatedAt of the second record", f.get("b").CreatedAt, start.Add(1234567*time.Nanosecond))
}

func explicitCreatedAtIsKept(f *fixture) {
	past := start.Add(-30*24*time.Hour + 7)
	ahead := start.Add(f.options.MaxSkew - time.Second)
	f.persist(record("now"), record("past", createdAt(past)), record("ahead", createdAt(ahead)))
	f.wantTime("CreatedAt of the record from the past", f.get("past").CreatedAt, past)
	f.wantTime("CreatedAt of the record from ahead", f.get("ahead").CreatedAt, ahead)
	f.claimExactly(1, 10, "past", "now", "ahead")
}

func explicitCreatedAtRaisesTheStamp(f *fixture) {
	ahead := start.Add(f.options.MaxSkew - time.Second)
	f.persist(record("ahead", key("k"), createdAt(ahead)))
	f.persistEach("k", "later")
	if got := f.get("later").CreatedAt; got.Before(ahead) {
		f.Fatalf("persisted after a record of %v and stamped %v", ahead, got)
	}
	second, _ := f.another(-time.Hour)
	f.on(second).persistEach("k", "last")
	f.claimExactly(1, 10, "ahead", "later", "last")
}

func createdAtTooFarAheadIsRefused(f *fixture) {
	call := []gobridge.Record{
		record("good"),
		record("ahead", createdAt(start.Add(f.options.MaxSkew+time.Second))),
	}
	f.wantFieldError(f.store.Persist(f.Context(), call), "CreatedAt")
	f.wantGone("good")
	f.wantGone("ahead")
	f.persist(record("next"))
	f.wantTime("CreatedAt after the refusal", f.get("next").CreatedAt, start)
}

// wantFieldError requires that err refuses a record for a field.
func (f *fixture) wantFieldError(err error, field string) {
	f.Helper()
	f.wantErr("Persist of an invalid "+field, err, gobridge.ErrInvalidRecord)
	var e *gobridge.FieldError
	if !errors.As(err, &e) || e.Field != field {
		f.Fatalf("Persist returned error %v, want a *gobridge.FieldError for %s", err, field)
	}
}

func dueTimesIgnoreAge(f *fixture) {
	ahead, past := start.Add(f.options.MaxSkew-time.Second), start.Add(-300*24*time.Hour)
	f.persist(record("past", createdAt(past)), record("ahead", createdAt(ahead)))
	for _, id := range []string{"past", "ahead"} {
		f.wantTime("StoredAt of "+id, f.get(id).StoredAt, start)
	}
	f.claimExactly(1, 10, "past", "ahead")
	f.complete(1, "past", "ahead")
	f.clock.Advance(f.options.Retention - time.Minute)
	f.sweep(1, 10)
	f.wantState(gobridge.StateDelivered, "past", "ahead")
	f.wantTime("EndedAt", f.get("past").EndedAt, start)
	f.clock.Advance(2 * time.Minute)
	f.sweep(1, 10)
	f.wantGone("past")
	f.wantGone("ahead")
}
