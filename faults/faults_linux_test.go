package faults

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge/operate"
)

// fault is one thing that goes wrong with a running bridge, and what an operator has
// against it.
type fault struct {
	name string // as the page has it
	// prepare changes the rig before the bridge starts, and inject brings the fault
	// about. During happens every minute while it lasts.
	prepare, inject, during func(r *rig)
	// state is how the overview calls it, and causes are what explain must name.
	state  string
	causes []string
	// explain, status and viewer are the commands and the admin listener by which it is
	// seen, those of the bridge itself when empty.
	explain, status string
	viewer          func(r *rig) (admin string)
	alert           string
	// mend does what is to be done outside of gobridge, and commands, which stand in the
	// runbooks, the rest.
	mend     func(r *rig)
	runbooks []string
	commands []string
	// healed checks that what the fault held up has happened.
	healed func(r *rig)
}

func TestFaults(t *testing.T) {
	all := slices.Concat(ofDestinations(), ofMessages(), ofProcesses(), ofStores())
	if len(all) != 12 {
		t.Errorf("there are %d faults", len(all))
	}
	page := newPage(t, all)
	t.Run("each", func(t *testing.T) {
		for i := range all {
			t.Run(all[i].name, func(t *testing.T) {
				t.Parallel()
				page.row(t, i, all[i].happens(t))
			})
		}
	})
	page.finish(t)
}

// happens lets a fault happen and end, and returns what the page says of it.
func (f *fault) happens(t *testing.T) row {
	r := newRig(t)
	if f.prepare != nil {
		f.prepare(r)
	}
	r.begin()
	p := newPrometheus(r, r.admin)
	p.quiet()

	f.inject(r)
	viewer := r.admin
	if f.viewer != nil {
		viewer = f.viewer(r)
	}
	shown := r.shows(viewer, or(f.status, "gobridge status"), f.state)
	said := f.explained(r)
	p.until(f.alert+" does not ring", func(fires []string) bool { return slices.Contains(fires, f.alert) }, f.happensOn(r))

	if f.mend != nil {
		f.mend(r)
	}
	for _, line := range f.commands {
		f.isInARunbook(t, line)
		if status, out := r.run(line); status != 0 {
			t.Fatalf("%s: status %d:\n%s", line, status, out)
		}
	}
	f.healed(r)
	r.well()
	p.until("it is over", func(fires []string) bool { return len(fires) == 0 }, nil)
	return row{f.name, shown.State, overviewText(&shown), said, f.alert, f.commands}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// happensOn returns what happens in each minute of a fault.
func (f *fault) happensOn(r *rig) func() {
	if f.during == nil {
		return nil
	}
	return func() { f.during(r) }
}

// explained asks explain until it names the cause: what it looks at may be a second old.
func (f *fault) explained(r *rig) string {
	r.Helper()
	line := or(f.explain, "gobridge explain orders/crm")
	deadline := time.Now().Add(patience)
	for {
		var answers []operate.Answer
		r.answer(line, &answers)
		said := answers[0].Sentence // there is always one
		missing := slices.IndexFunc(f.causes, func(c string) bool { return !strings.Contains(plain(said), c) })
		if missing < 0 {
			return said
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s does not name %q: %s", line, f.causes[missing], said)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// isInARunbook checks that an operator finds a command where the alert leads to.
func (f *fault) isInARunbook(t *testing.T, line string) {
	t.Helper()
	for _, name := range append(f.runbooks, f.alert) {
		text, err := os.ReadFile("../docs/runbooks/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(strings.Split(string(text), "\n"), line) {
			return
		}
	}
	t.Errorf("no runbook of %s has %s", f.alert, line)
}

const retry = `gobridge retry orders/crm --yes --reason "mended"`

func ofDestinations() []fault {
	waits := func(r *rig) { r.post(http.StatusAccepted, "m-1", "cust-7781") }
	arrives := func(r *rig) { r.eventually("m-1 arrives", func() bool { return r.dest.has("m-1") }) }
	return []fault{
		{
			name: "a destination is down", state: operate.StateDown, alert: "GobridgeDestinationDown",
			inject:   func(r *rig) { r.dest.down(); waits(r) },
			causes:   []string{"orders/crm", "down since", "connection refused"},
			mend:     func(r *rig) { r.dest.up(r.TB) },
			commands: []string{retry}, healed: arrives,
		},
		{
			name: "a destination refuses the credential", state: operate.StateDown, alert: "GobridgeDestinationDown",
			inject:   func(r *rig) { r.dest.answers(http.StatusUnauthorized); waits(r) },
			causes:   []string{"orders/crm", "down since", "401 Unauthorized"},
			mend:     func(r *rig) { r.dest.answers(0) },
			commands: []string{retry}, healed: arrives,
		},
	}
}

func ofMessages() []fault {
	return []fault{
		{
			name: "a message poisons its key", state: operate.StateFailing, alert: "GobridgeOutboxStuck",
			explain: "gobridge explain cust-7781",
			prepare: func(r *rig) { r.dest.answers(http.StatusInternalServerError, "m-1") },
			inject:  poison,
			during:  (*rig).another,
			causes:  []string{"message m-1, the next of key cust-7781", "500 Internal Server Error", "is tried again at"},
			commands: []string{
				`gobridge discard orders/crm --id m-1 --yes --reason "customer says it is void"`,
			},
			healed: func(r *rig) { r.eventually("m-2 arrives", func() bool { return r.dest.has("m-2") }) },
		},
		{
			name: "a key is halted", state: operate.StateHalted, alert: "GobridgeKeysHalted",
			explain: "gobridge explain cust-7781",
			prepare: func(r *rig) { r.route = "\n    on_failure: halt_key" },
			inject: func(r *rig) {
				r.dest.answers(http.StatusBadRequest, "m-1")
				r.post(http.StatusAccepted, "m-1", "cust-7781")
				r.post(http.StatusAccepted, "m-2", "cust-7781")
			},
			causes:   []string{"key cust-7781 is halted since", "400 Bad Request"},
			mend:     func(r *rig) { r.dest.answers(0) },
			commands: []string{`gobridge resume orders/crm --key cust-7781 --yes --reason "looked into it"`},
			healed:   func(r *rig) { r.eventually("both arrive", func() bool { return r.dest.has("m-1", "m-2") }) },
		},
		{
			name: "the dead letters are full", state: operate.StateDeadFull, alert: "GobridgeDeadLetters",
			explain: "gobridge explain cust-7781",
			prepare: func(r *rig) { r.store = "{ sqlite: { path: outbox.db, max_dead_letters: 2 } }" },
			inject: func(r *rig) {
				r.dest.answers(http.StatusUnprocessableEntity)
				for i := range 2 {
					r.post(http.StatusAccepted, fmt.Sprintf("d-%d", i), "")
				}
				r.eventually("the dead letters are full", func() bool {
					_, text := r.get(r.admin, "/metrics")
					return strings.Contains(text, `gobridge_outbox_dead_depth{binding="crm",partition="orders/crm/0",route="orders"} 2`)
				})
				r.post(http.StatusAccepted, "m-1", "cust-7781")
			},
			causes: []string{"key cust-7781 is halted since", "dead letters full", "422"},
			mend:   func(r *rig) { r.dest.answers(0) },
			commands: []string{
				`gobridge dead redrive orders/crm --yes --reason "schema fixed"`,
				`gobridge resume orders/crm --key cust-7781 --yes --reason "looked into it"`,
			},
			runbooks: []string{"GobridgeKeysHalted"},
			healed:   func(r *rig) { r.eventually("all arrive", func() bool { return r.dest.has("d-0", "d-1", "m-1") }) },
		},
	}
}

func ofProcesses() []fault {
	const admin = " --admin http://127.0.0.1:9090"
	return []fault{
		{
			name: "the owner is dead, and nobody takes over", state: operate.StateStaleOwner, alert: "GobridgeDown",
			inject: func(r *rig) {
				r.dest.answers(http.StatusUnauthorized)
				r.post(http.StatusAccepted, "m-1", "cust-7781")
				r.newest.kill()
			},
			viewer:   (*rig).onlooker,
			causes:   []string{"the process that delivered it, host-4711-5ZB4T9WR, has ended or does not reach the store"},
			mend:     func(r *rig) { r.dest.answers(0) },
			commands: []string{"gobridge run b.yaml"},
			healed:   func(r *rig) { r.eventually("m-1 arrives", func() bool { return r.dest.has("m-1") }) },
		},
		{
			name: "a clock has jumped", state: operate.StateClock, alert: "GobridgeClockJumped",
			explain:  "gobridge explain cust-7781",
			inject:   jump,
			causes:   []string{"is tried again at", "ahead of this machine's clock", "this clock is wrong, or that of"},
			commands: []string{`gobridge retry orders/crm --yes --reason "the clock was wrong"`},
			healed:   func(r *rig) { r.eventually("both arrive", func() bool { return r.dest.has("m-1", "m-2") }) },
		},
		{
			name: "a route is removed while messages wait", state: operate.StateRemoved, alert: "GobridgeRemoved",
			explain:  "gobridge explain old/crm",
			inject:   abandon,
			causes:   []string{"old/crm", "the configuration has no binding old/crm"},
			mend:     func(r *rig) { r.dest.answers(0) },
			commands: []string{`gobridge move old/crm orders/crm --yes --reason "renamed"`},
			healed:   func(r *rig) { r.eventually("both arrive", func() bool { return r.dest.has("m-1", "m-2") }) },
		},
		{
			name: "a reload is refused", state: operate.StateNotReloaded, alert: "GobridgeNotReloaded",
			status: "gobridge status" + admin, explain: "gobridge explain orders/crm" + admin,
			inject:   misconfigure,
			causes:   []string{"a reload was refused", "b.yaml", "unknown field", "rutes"},
			mend:     func(r *rig) { r.file("b.yaml", r.text(r.admin)) },
			commands: []string{`curl -sS --fail-with-body -H "Authorization: Bearer $GOBRIDGE_ADMIN_TOKEN" -H "Content-Type: application/json" -d '{"by":"ann","reason":"mended"}' http://127.0.0.1:9090/api/v1/reload`},
			healed:   func(r *rig) { r.delivers("after") },
		},
	}
}

func ofStores() []fault {
	delivers := func(r *rig) {
		r.eventually("messages are taken again", func() bool { r.another(); return r.dest.has(fmt.Sprintf("another-%d", r.posted-3)) })
	}
	return []fault{
		{
			name: "the outbox may only be read", state: operate.StateUnwritable, alert: "GobridgeMessagesRefused",
			prepare: (*rig).onTable, inject: func(r *rig) { r.table.denied.Store(true) },
			during:   (*rig).another,
			causes:   []string{"the store as a whole", "AccessDeniedException", "not authorized"},
			mend:     func(r *rig) { r.table.denied.Store(false) },
			commands: []string{retry}, healed: delivers,
		},
		{
			name: "the table is throttled", state: operate.StateThrottled, alert: "GobridgeDynamoDBThrottled",
			prepare: (*rig).onTable,
			inject:  func(r *rig) { r.table.throttle(); r.another() },
			during:  (*rig).another,
			causes:  []string{"the store as a whole", "store throttled", "requests"},
			mend:    func(r *rig) { r.table.calm() },
			healed:  delivers,
		},
		{
			name: "the disk is full", state: operate.StateDisk, alert: "GobridgeMessagesRefused",
			prepare: (*rig).onDisk, inject: func(r *rig) { r.disk.fill(r) },
			during:   (*rig).another,
			causes:   []string{"the store as a whole", "outbox full"},
			mend:     func(r *rig) { r.must(os.Remove(r.disk.ballast)) },
			commands: []string{retry}, healed: delivers,
		},
	}
}
