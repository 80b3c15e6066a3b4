package operate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/memory"
)

const (
	crm   = gobridge.Partition("orders/crm/0")
	other = gobridge.Partition("orders/billing/0")
)

var (
	token = gobridge.Token{Owner: "host-123-ABCDEFGH", Version: 1}
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ann   = operate.Who{By: "ann@host", Reason: "because"}
)

// world is a store with a clock, and a desk on it.
type world struct {
	*testing.T
	now   time.Time
	store *memory.Store
	desk  *operate.Desk
}

func newWorld(t *testing.T, options memory.Options, plan *operate.Plan) *world {
	w := &world{T: t, now: start}
	options.Now = func() time.Time { return w.now }
	w.store = memory.New(options)
	w.desk = operate.New(w.store, operate.Options{Plan: plan, Now: options.Now})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func message(p gobridge.Partition, id, key string) gobridge.Record {
	_, binding, _, _ := p.Split()
	return gobridge.Record{Partition: p, Binding: binding, Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: []byte("payload of " + id)}}
}

func (w *world) persist(records ...gobridge.Record) {
	w.Helper()
	w.must(w.store.Persist(w.Context(), records))
}

// own takes the lease of a partition, as a bridge does.
func (w *world) own(p gobridge.Partition) {
	w.Helper()
	_, err := w.store.Leases().Acquire(w.Context(), gobridge.AcquireRequest{Partition: p, Owner: token.Owner, Term: 5 * time.Second})
	w.must(err)
}

func (w *world) claim(p gobridge.Partition, limit int) []gobridge.Record {
	w.Helper()
	out, err := w.store.Claim(w.Context(), gobridge.ClaimRequest{Partition: p, Token: token, Limit: limit, HeldKnown: true})
	w.must(err)
	return out
}

// bury makes dead letters of n messages of ten keys.
func (w *world) bury(p gobridge.Partition, n int) {
	w.Helper()
	for i := range n {
		w.persist(message(p, fmt.Sprintf("d%04d", i), fmt.Sprintf("k%d", i%10)))
	}
	var burials []gobridge.Burial
	for _, r := range w.claim(p, n) {
		burials = append(burials, gobridge.Burial{Ref: r.Ref(), Reason: "permanent", Error: "400 bad"})
	}
	w.must(w.store.DeadLetter(w.Context(), token, burials))
}

func (w *world) dead() int64 {
	w.Helper()
	s, err := w.store.Stats(w.Context(), crm)
	w.must(err)
	return s[0].Dead
}

// explain returns the one answer to a question.
func (w *world) explain(text string) operate.Answer {
	w.Helper()
	all, err := w.desk.Explain(w.Context(), operate.Question{Text: text})
	w.must(err)
	if len(all) != 1 {
		w.Fatalf("%d answers for %q: %+v", len(all), text, all)
	}
	return all[0]
}

// want checks an answer's sentence, and the command of one of its steps.
func (w *world) want(a operate.Answer, sentence, command string) {
	w.Helper()
	if !strings.Contains(a.Sentence, sentence) {
		w.Errorf("%s: %q, want %q in it", a.About, a.Sentence, sentence)
	}
	var commands []string
	for _, s := range a.Steps {
		commands = append(commands, strings.Join(s.Command, " "))
	}
	if command != "" && !slices.Contains(commands, command) {
		w.Errorf("%s: commands %q, want %q", a.About, commands, command)
	}
}

func TestExplainSaysWhyAndWhatToDo(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.own(crm)
	w.persist(message(crm, "a", "k"), message(crm, "b", "k"), message(crm, "c", ""))
	w.want(w.explain("a"), "message a to orders/crm goes out with the next claim", "")

	w.must(w.desk.Pause(w.Context(), operate.Target{Route: "orders"}, ann))
	w.want(w.explain("b"), "orders is paused since 12:00:00 by ann@host: because", "gobridge resume orders")
	w.must(w.desk.Resume(w.Context(), operate.Target{Route: "orders"}, "", "", ann))
	if err := w.desk.Resume(w.Context(), operate.Target{Route: "orders"}, "", "", ann); !errors.Is(err, gobridge.ErrNotFound) {
		t.Errorf("resumed twice: %v", err)
	}

	claimed := w.claim(crm, 10)
	w.want(w.explain("b"), "is with host-123-ABCDEFGH since 12:00:00", "")
	w.must(w.store.Release(w.Context(), token, []gobridge.Release{
		{Ref: claimed[0].Ref(), Tried: gobridge.Failed, NotBefore: start.Add(time.Hour), Reason: "failed", Error: "500 oops"},
		{Ref: claimed[1].Ref()},
	}))
	w.want(w.explain("b"), "waits behind message a of its key, which failed once (500 oops) and is tried again at 13:00:00 (in 60m)",
		"gobridge retry orders/crm --id a")
	w.want(w.explain("k"), "message a, the next of key k,", "gobridge discard orders/crm --id a")

	w.must(w.desk.Halt(w.Context(), operate.Target{Route: "orders", Binding: "crm"}, "k", "", ann))
	w.want(w.explain("k"), "key k is halted since 12:00:00 by ann@host: because", "gobridge resume orders/crm --key k")

	w.must(w.store.Complete(w.Context(), token, []gobridge.Completion{{Ref: claimed[2].Ref()}}))
	w.want(w.explain("c"), "was delivered at 12:00:00; a repeat under its ID is a duplicate", "")
	w.want(w.explain("nobody"), "no route, binding, message or waiting key is named nobody", "gobridge try --id nobody")
}

// TestARedrivenMessageHasNotFailed since then: the error that it has is of its death.
func TestARedrivenMessageHasNotFailed(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.own(crm)
	w.bury(crm, 1)
	_, err := w.desk.Do(t.Context(), operate.Job{Kind: operate.Redrive, Filter: gobridge.Filter{Partition: crm}}, ann, nil)
	w.must(err)
	quiet := func() {
		t.Helper()
		for _, a := range []string{"orders/crm", "d0000"} {
			for _, answer := range w.explain(a).Steps {
				t.Errorf("%s: %+v", a, answer)
			}
		}
	}
	quiet()
	claimed := w.claim(crm, 1)
	quiet()
	w.must(w.store.Release(t.Context(), token, []gobridge.Release{{Ref: claimed[0].Ref(), NotBefore: start.Add(time.Hour), Reason: "failed", Error: "500 again"}}))
	w.want(w.explain(claimed[0].Envelope.ID), "500 again", "gobridge retry orders/crm --id "+claimed[0].Envelope.ID)
}

func TestExplainKnowsTheDestination(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "a", ""))
	w.want(w.explain("a"), "waits: no process drains it", "gobridge run")
	w.own(crm)
	w.claim(crm, 0)
	w.must(w.store.Report(w.Context(), crm, token, gobridge.Condition{Down: true, Since: start, Error: "POST https://h/: 401 Unauthorized"}))
	w.want(w.explain("a"), "waits: orders/crm is down since 12:00:00: POST https://h/: 401 Unauthorized", "gobridge retry orders/crm")
	w.want(w.explain("orders"), "1 waits, the oldest for 0s", "gobridge retry orders/crm")
	if a := w.explain("orders/crm"); a.Cause != operate.StateDown || !strings.HasPrefix(a.Steps[0].Text, "it refuses our credential") {
		t.Errorf("%+v", a)
	}
}

func TestStatus(t *testing.T) {
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{
		{Route: "orders", Binding: "crm", MaxOutboxDepth: 2, RejectsWhenFull: true},
		{Route: "orders", Binding: "billing", Filter: "payload.n > 1"},
	}}
	w := newWorld(t, memory.Options{MaxDead: 3}, plan)
	w.own(crm)
	w.own(other)
	status := func(level string, want ...string) {
		t.Helper()
		s, err := w.desk.Status(t.Context())
		w.must(err)
		var got []string
		for _, b := range s.Bindings {
			for _, f := range b.Findings {
				got = append(got, b.Route+"/"+b.Binding+" "+f.State)
			}
		}
		if s.Level != level || !slices.Equal(got, want) {
			t.Errorf("level %s, findings %q; want %s, %q", s.Level, got, level, want)
		}
	}
	status("ok")
	w.bury(other, 2)
	status("ok", "orders/billing dead letters")
	w.persist(message(other, "d9", ""))
	claimed := w.claim(other, 1)
	w.must(w.store.DeadLetter(t.Context(), token, []gobridge.Burial{{Ref: claimed[0].Ref()}}))
	status("degraded", "orders/billing dead letters full", "orders/billing dead letters")
	w.persist(message(crm, "a", ""), message(crm, "b", ""))
	status("degraded", "orders/billing dead letters full", "orders/billing dead letters", "orders/crm full")
	w.persist(message("gone/x/0", "a", ""))
	w.must(w.desk.Pause(t.Context(), operate.Target{Route: "orders", Binding: "billing"}, ann))
	status("degraded", "gone/x removed", "orders/billing paused", "orders/billing dead letters full", "orders/billing dead letters", "orders/crm full")
	plan.Parked = []string{"gone"}
	_, err := w.desk.Do(t.Context(), operate.Job{Kind: operate.Discard, Filter: gobridge.Filter{States: []gobridge.State{gobridge.StatePending, gobridge.StateDead}}}, ann, nil)
	w.must(err)
	status("degraded", "orders/billing paused")
}

func TestADeadOwnerIsToldFromAWrongClock(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "a", ""))
	lease, err := w.store.Leases().Acquire(t.Context(), gobridge.AcquireRequest{Partition: crm, Owner: token.Owner, Term: 300 * time.Millisecond})
	w.must(err)
	w.now = start.Add(24 * time.Hour)
	w.want(w.explain("a"), "the process that delivered it, host-123-ABCDEFGH, has ended or does not reach the store: it gave no sign since 2026-03-01 12:00", "gobridge run")
	// One whose clock is a day behind, and who renews.
	slow := w.store.Handle(func() time.Time { return start })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			renewed, err := slow.Leases().Renew(context.Background(), []gobridge.Lease{lease})
			if err != nil {
				done <- err
				return
			}
			lease = renewed[0]
			time.Sleep(time.Millisecond)
		}
		done <- nil
	}()
	w.want(w.explain("a"), "goes out with the next claim", "")
	cancel()
	w.must(<-done)
}

func TestBulkPacesBoundsStopsAndGoesOn(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.bury(crm, 100)
	w.persist(message(crm, "newer", "k1"))
	for _, r := range w.claim(crm, 1) {
		w.must(w.store.Complete(t.Context(), token, []gobridge.Completion{{Ref: r.Ref()}}))
	}
	job := operate.Job{Kind: operate.Redrive, Filter: gobridge.Filter{Partition: crm}, DryRun: true}
	dry, err := w.desk.Do(t.Context(), job, ann, nil)
	w.must(err)
	if dry.Count != 100 || dry.Keys != 10 || dry.Overtaken != 10 || dry.Reasons["permanent"] != 100 || len(dry.First) != 5 || w.dead() != 100 {
		t.Fatalf("dry: %+v, %d dead", dry, w.dead())
	}
	job.DryRun, job.Max = false, 30
	capped, err := w.desk.Do(t.Context(), job, ann, nil)
	w.must(err)
	if capped.Count != 30 || !capped.More || w.dead() != 70 {
		t.Fatalf("capped: %+v, %d dead", capped, w.dead())
	}
	// Stopped in the middle, it tells how far it came.
	job.Max, job.Pace = 0, 50
	ctx, cancel := context.WithCancel(t.Context())
	stopped, err := w.desk.Do(ctx, job, ann, func(done int) {
		if done >= 20 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || stopped.Count != 20 || w.dead() != 50 {
		t.Fatalf("stopped: %+v, %v, %d dead", stopped, err, w.dead())
	}
	job.Pace = 0
	rest, err := w.desk.Do(t.Context(), job, ann, nil)
	w.must(err)
	if rest.Count != 50 || w.dead() != 0 {
		t.Fatalf("the rest: %+v, %d dead", rest, w.dead())
	}
	last := map[string]string{}
	for _, r := range w.claim(crm, 1000) {
		if k := r.Envelope.OrderingKey; r.Envelope.ID <= last[k] {
			t.Errorf("%s after %s", r.Envelope.ID, last[k])
		} else {
			last[k] = r.Envelope.ID
		}
	}
	entries, err := w.desk.Audit(t.Context(), 10)
	w.must(err)
	if len(entries) != 1 || entries[0].Count != 100 || entries[0].By != "ann@host" || entries[0].Reason != "because" {
		t.Errorf("audit: %+v", entries)
	}
}

func TestExportAndImportResume(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.bury(crm, 450)
	w.persist(letterOf("odd"))
	var file bytes.Buffer
	n, err := w.desk.Export(t.Context(), gobridge.Filter{Partition: crm}, &file, nil, nil)
	w.must(err)
	if n != 451 {
		t.Fatalf("%d exported", n)
	}
	whole := file.Bytes()

	// Cut off in the middle of a line, the export goes on behind the last whole one.
	cut := whole[:len(whole)/2]
	refs, length, err := operate.Exported(bytes.NewReader(cut))
	w.must(err)
	rest := bytes.NewBuffer(slices.Clone(cut[:length]))
	_, err = w.desk.Export(t.Context(), gobridge.Filter{Partition: crm}, rest, func(r gobridge.Ref) bool { return refs[r] }, nil)
	w.must(err)
	if !bytes.Equal(rest.Bytes(), whole) {
		t.Fatalf("resumed, the export has %d bytes, want %d", rest.Len(), len(whole))
	}

	there := newWorld(t, memory.Options{}, nil)
	half := whole[:length]
	report, err := there.desk.Import(t.Context(), bytes.NewReader(half), operate.Target{}, ann, false, nil)
	w.must(err)
	if report.Imported != len(refs) || report.Held != 0 {
		t.Fatalf("the first half: %+v", report)
	}
	report, err = there.desk.Import(t.Context(), bytes.NewReader(whole), operate.Target{}, ann, false, nil)
	w.must(err)
	if report.Imported+report.Held != 451 || report.Held != len(refs) {
		t.Fatalf("the whole: %+v", report)
	}
	var again bytes.Buffer
	_, err = there.desk.Export(t.Context(), gobridge.Filter{Partition: crm}, &again, nil, nil)
	w.must(err)
	want, err := w.store.QueryDead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Partition: crm}, Limit: 1000})
	w.must(err)
	got, err := there.store.QueryDead(t.Context(), gobridge.DeadQuery{Filter: gobridge.Filter{Partition: crm}, Limit: 1000})
	w.must(err)
	for i := range want.Records {
		a, b := want.Records[i], got.Records[i]
		if string(a.Envelope.Payload) != string(b.Envelope.Payload) || a.Envelope.ID != b.Envelope.ID || a.ContentHash != b.ContentHash || a.Error != b.Error {
			t.Fatalf("record %d is %+v, want %+v", i, b, a)
		}
	}
	if _, err := there.desk.Import(t.Context(), bytes.NewReader(cut), operate.Target{}, ann, false, nil); err == nil || !strings.Contains(err.Error(), "line ") {
		t.Errorf("a cut line: %v", err)
	}
}

func TestStatusCountsWhatWasEverStored(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.bury(crm, 3)
	w.persist(message(crm, "a", ""), message(crm, "b", ""))
	_, err := w.desk.Do(t.Context(), operate.Job{Kind: operate.Redrive, Filter: gobridge.Filter{Partition: crm, EnvelopeID: "d0000"}}, ann, nil)
	w.must(err)
	s, err := w.desk.Status(t.Context())
	w.must(err)
	if got := s.Bindings[0].Stored; got != 6 {
		t.Errorf("%d stored; want 5 messages and 1 redriven", got)
	}
}

func TestControlsListsPausesAndHalts(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "a", "k"))
	w.must(w.desk.Pause(t.Context(), operate.Target{Route: "orders"}, ann))
	w.now = w.now.Add(time.Second)
	w.must(w.desk.Halt(t.Context(), operate.Target{Route: "orders", Binding: "crm"}, "k", "", ann))
	all, err := w.desk.Controls(t.Context())
	w.must(err)
	if len(all) != 2 || all[0].Kind != gobridge.Pause || all[1].OrderingKey != "k" || all[1].By != ann.By {
		t.Errorf("%+v", all)
	}
}

// ailing is a store that takes no writes for a reason.
type ailing struct {
	*memory.Store
	err error
}

func (s ailing) Check(context.Context) error { return s.err }

// stuck is the error of a store that nothing can be written to.
type stuck struct{ error }

func (stuck) Stuck() bool     { return true }
func (s stuck) Unwrap() error { return s.error }

// TestWhatAilsTheStoreIsTheCause: status has it, and so has the explanation of
// whatever waits, and of nothing that does not.
func TestWhatAilsTheStoreIsTheCause(t *testing.T) {
	for _, tt := range []struct {
		err         error
		state, text string
	}{
		{gobridge.ErrThrottled, operate.StateThrottled, "store throttled"},
		{gobridge.ErrOutboxFull, operate.StateDisk, "outbox full; new messages are refused, what was accepted is kept and delivered"},
		{stuck{gobridge.ErrOutboxFull}, operate.StateDisk, "outbox full; until there is room next to nothing can be written: new messages are refused, deliveries come to a stand and may be repeated, nothing can be discarded; what was accepted is kept"},
		{errors.New("AccessDenied"), operate.StateUnwritable, "AccessDenied"},
	} {
		w := newWorld(t, memory.Options{}, nil)
		w.persist(message(crm, "m-1", "k"))
		w.own(crm)
		w.desk = operate.New(ailing{w.store, &gobridge.Error{Op: "check", Err: tt.err, Hint: "do it"}}, operate.Options{Now: func() time.Time { return w.now }})
		status, err := w.desk.Status(t.Context())
		w.must(err)
		if status.Level != operate.LevelDegraded || len(status.Store) != 1 || status.Store[0].State != tt.state {
			t.Errorf("%v: %+v", tt.err, status.Store)
		}
		for _, text := range []string{"orders/crm", "m-1"} {
			a := w.explain(text)
			w.want(a, "the store as a whole: "+tt.text, "")
			if !slices.ContainsFunc(a.Steps, func(s operate.Step) bool { return s.Text == "do it" }) {
				t.Errorf("%s: %+v", text, a.Steps)
			}
		}
		key, err := w.desk.Explain(t.Context(), operate.Question{Text: "k", OnlyKey: true})
		w.must(err)
		w.want(key[0], "the store as a whole: "+tt.text, "")
		w.now = w.now.Add(time.Hour)
		if a := w.explain("orders/crm"); !strings.Contains(a.Sentence, "has not renewed its lease") || strings.Contains(a.Sentence, "died") {
			t.Errorf("that the owner can't renew its lease is no sign of its death: %s", a.Sentence)
		}
		_, err = w.desk.Do(t.Context(), operate.Job{Kind: operate.Discard, Filter: gobridge.Filter{EnvelopeID: "m-1", States: []gobridge.State{gobridge.StatePending}}}, ann, nil)
		w.must(err)
		if a := w.explain("m-1"); strings.Contains(a.Sentence, "as a whole") {
			t.Errorf("it has ended: %s", a.Sentence)
		}
	}
}

// TestWhatAilsTheProcessIsSaid for as long as it does.
func TestWhatAilsTheProcessIsSaid(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "m-1", "k"))
	w.own(crm)
	w.desk.SetProcess(operate.Finding{State: operate.StateNotReloaded, Since: start, Text: "line 7 is wrong"})
	status, err := w.desk.Status(t.Context())
	w.must(err)
	if status.Level != operate.LevelDegraded || len(status.Process) != 1 {
		t.Errorf("%+v", status)
	}
	w.want(w.explain("orders/crm"), "this process: line 7 is wrong", "")
	w.desk.SetProcess()
	status, err = w.desk.Status(t.Context())
	w.must(err)
	if status.Level != operate.LevelOK || len(status.Process) != 0 {
		t.Errorf("%+v", status)
	}
}
