package operate_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/operate"
	"gobridge/store/memory"
)

// commands are those of an answer, each as a line.
func commands(a operate.Answer) []string {
	var out []string
	for _, s := range a.Steps {
		out = append(out, strings.Join(s.Command, " "))
	}
	return out
}

// TestADiscardIsOfferedForWhatFailed, and not for what waits behind it when that has
// gone.
func TestADiscardIsOfferedForWhatFailed(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.own(crm)
	w.persist(message(crm, "in-1", "k"), message(crm, "in-2", "k"))
	claimed := w.claim(crm, 2)
	w.must(w.store.Release(t.Context(), token, []gobridge.Release{
		{Ref: claimed[0].Ref(), Tried: gobridge.Failed, Reason: "permanent", Error: "422 no"},
		{Ref: claimed[1].Ref()},
	}))
	halt := gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: "k", By: token.Owner, Reason: "permanent: 422 no"}
	w.must(w.store.SetControl(t.Context(), halt))
	const resume = "gobridge resume orders/crm --key k"
	for _, id := range []string{"in-1", "in-2"} {
		a := w.explain(id)
		w.want(a, "key k is halted", "gobridge discard orders/crm --id in-1")
		w.want(a, "key k is halted", resume)
	}
	_, err := w.desk.Do(t.Context(), operate.Job{Kind: operate.Discard, Filter: gobridge.Filter{EnvelopeID: "in-1", States: []gobridge.State{gobridge.StatePending}}}, ann, nil)
	w.must(err)
	for _, question := range []string{"in-2", "k"} {
		a := w.explain(question)
		w.want(a, "key k is halted", resume)
		if got := commands(a); len(got) != 1 || !strings.Contains(a.Steps[0].Text, "the message that failed has ended") {
			t.Errorf("%s, which nobody has tried: %q, %q", question, got, a.Steps[0].Text)
		}
	}
	_, err = w.desk.Do(t.Context(), operate.Job{Kind: operate.Discard, Filter: gobridge.Filter{EnvelopeID: "in-2", States: []gobridge.State{gobridge.StatePending}}}, ann, nil)
	w.must(err)
	a, err := w.desk.Explain(t.Context(), operate.Question{Text: "k", OnlyKey: true})
	w.must(err)
	if len(a) != 1 || len(a[0].Steps) != 1 || !strings.Contains(a[0].Steps[0].Text, "the message that failed has ended") {
		t.Errorf("nothing waits: %+v", a)
	}
}

// TestAHaltOfAPersonIsLifted: nothing has failed.
func TestAHaltOfAPersonIsLifted(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.own(crm)
	w.persist(message(crm, "m-1", "k"))
	w.must(w.desk.Halt(t.Context(), operate.Target{Route: "orders", Binding: "crm"}, "k", "", ann))
	a := w.explain("m-1")
	w.want(a, "by ann@host: because", "gobridge resume orders/crm --key k")
	if len(a.Steps) != 1 || a.Steps[0].Text != "let it go on" {
		t.Errorf("%+v", a.Steps)
	}
}

// TestNobodyIsToldToStopWhatWorks: a process number means nothing on another machine.
func TestNobodyIsToldToStopWhatWorks(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "m-1", "k"))
	w.own(crm)
	if a := w.explain("orders/crm"); len(a.Steps) != 0 {
		t.Errorf("all is well: %+v", a.Steps)
	}
}

// held is an error that names who holds a store.
type held struct{ error }

func (held) Holder() (int, string) { return 4711, "sqlite3" }
func (h held) Unwrap() error       { return h.error }

// TestTheHoldersMachineIsNamed, for those who look from elsewhere.
func TestTheHoldersMachineIsNamed(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, memory.Options{}, nil)
	w.desk = operate.New(ailing{w.store, held{gobridge.ErrLocked}}, operate.Options{Now: func() time.Time { return w.now }})
	s, err := w.desk.Status(t.Context())
	w.must(err)
	if len(s.Store) != 1 || !slices.ContainsFunc(s.Store[0].Steps, func(s operate.Step) bool {
		return strings.Contains(s.Text, "process 4711 on "+host) && slices.Equal(s.Command, []string{"kill", "4711"})
	}) {
		t.Errorf("%+v", s.Store)
	}
}

// TestAnImportSaysWhatHasEnded: that is not here, and its ID is remembered.
func TestAnImportSaysWhatHasEnded(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.bury(crm, 4)
	var file bytes.Buffer
	_, err := w.desk.Export(t.Context(), gobridge.Filter{Partition: crm}, &file, nil, nil)
	w.must(err)
	end := func(kind operate.BulkKind, id string) {
		_, err := w.desk.Do(t.Context(), operate.Job{Kind: kind, Filter: gobridge.Filter{EnvelopeID: id, States: []gobridge.State{gobridge.StateDead}}}, ann, nil)
		w.must(err)
	}
	end(operate.Discard, "d0000")
	end(operate.Discard, "d0001")
	end(operate.Redrive, "d0002")
	for _, r := range w.claim(crm, 1) {
		w.must(w.store.Complete(t.Context(), token, []gobridge.Completion{{Ref: r.Ref()}}))
	}
	for _, dry := range []bool{true, false} {
		report, err := w.desk.Import(t.Context(), bytes.NewReader(file.Bytes()), operate.Target{}, ann, dry, nil)
		w.must(err)
		if want := (operate.ImportReport{Read: 4, Held: 4, Discarded: 2, Delivered: 1}); report != want {
			t.Errorf("%+v, want %+v", report, want)
		}
	}
}

func TestNumbersAreWrittenAlike(t *testing.T) {
	w := newWorld(t, memory.Options{MaxDead: 2000}, nil)
	w.own(crm)
	records := make([]gobridge.Record, 1500)
	for i := range records {
		records[i] = message(crm, fmt.Sprint("d", i), "")
		records[i].State = gobridge.StateDead
	}
	w.persist(records...)
	s, err := w.desk.Status(t.Context())
	w.must(err)
	if f := s.Bindings[0].Findings; len(f) != 1 || !strings.HasPrefix(f[0].Text, "1,500 dead letters wait") {
		t.Errorf("%+v", f)
	}
}

// TestNothingIsNoQuestion: it would match whatever has no key.
func TestNothingIsNoQuestion(t *testing.T) {
	w := newWorld(t, memory.Options{}, nil)
	w.persist(message(crm, "m-1", ""))
	if a, err := w.desk.Explain(t.Context(), operate.Question{}); !errors.Is(err, operate.ErrNoQuestion) {
		t.Errorf("%+v, %v", a, err)
	}
}
