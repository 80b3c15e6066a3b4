package storetest

import (
	"fmt"
	"time"

	"gobridge"
)

func deadCases() []testCase {
	return []testCase{
		{name: "DeadLetterKeepsTheMessage", run: deadLetterKeepsTheMessage,
			why: "A dead letter is there to be looked at and sent again, with the reason why it was not delivered."},
		{name: "DeadLetterIsOneStep", run: deadLetterIsOneStep,
			why: "At no instant is a message in neither place or in both, wherever the call is cut off."},
		{name: "DeadLettersFullByCount", run: deadLettersFullByCount,
			settings: func(o *Options) { o.MaxDead = 2 },
			why:      "Where the dead letters are full, the record keeps its place; nothing is dropped."},
		{name: "DeadLettersFullByBytes", run: deadLettersFullByBytes,
			settings: func(o *Options) { o.MaxDeadBytes = 1000 },
			why:      "Large dead letters must not fill the disk that the outbox needs."},
		{name: "QueryDeadPagesByAge", run: queryDeadPagesByAge,
			why: "Someone who pages through the dead letters sees each once, oldest first, in every partition."},
		{name: "FilterMatchesEveryFieldThatIsSet", run: filterMatchesEveryFieldThatIsSet,
			why: "An operator who narrows a filter must hit what it says and nothing else."},
		{name: "CursorThatNobodyGave", run: cursorThatNobodyGave,
			why: "A mistyped cursor must not begin anew, at the first record, what was to go on in the midst."},
	}
}

func deadLetterKeepsTheMessage(f *fixture) {
	f.persist(record("a", key("k"), headers("name", "value")), record("tail", key("k")))
	f.claimExactly(1, 1, "a")
	f.clock.Advance(time.Second + 9)
	f.bury(1, "a")
	page, err := f.store.QueryDead(f.Context(), gobridge.DeadQuery{})
	if err != nil || page.Cursor != "" {
		f.Fatalf("QueryDead returned cursor %q and error %v, want neither", page.Cursor, err)
	}
	f.wantIDs(page.Records, "a")
	for _, r := range []gobridge.Record{page.Records[0], f.get("a")} {
		if string(r.Envelope.Payload) != "payload of a" || r.Envelope.Headers["name"] != "value" || r.Envelope.OrderingKey != "k" {
			f.Fatalf("the dead letter's envelope is %+v", r.Envelope)
		}
		if r.State != gobridge.StateDead || r.Reason != gobridge.ReasonPermanent || r.Error != "no such customer" ||
			r.Attempts != 1 || r.ReplayCount != 1 || r.ClaimedBy != token(1) {
			f.Fatalf("the dead letter is %+v", r)
		}
		f.wantTime("EndedAt", r.EndedAt, start.Add(time.Second+9))
	}
	f.claimExactly(1, 10, "tail")
	f.wantIDs(f.claim(2, 10), "tail")
}

func cursorThatNobodyGave(f *fixture) {
	f.persist(record("a"), record("b"))
	f.claimExactly(1, 10, "a", "b")
	f.bury(1, "a", "b")
	for _, cursor := range []string{"nonsense", "e30x", "?"} {
		_, err := f.store.QueryDead(f.Context(), gobridge.DeadQuery{Cursor: cursor})
		f.wantErr("QueryDead", err, gobridge.ErrInvalidCursor)
		request := gobridge.BulkRequest{Cursor: cursor, Reason: "x", Filter: gobridge.Filter{States: states(gobridge.StateDead)}}
		_, err = f.store.Redrive(f.Context(), request)
		f.wantErr("Redrive", err, gobridge.ErrInvalidCursor)
		_, err = f.store.Discard(f.Context(), request)
		f.wantErr("Discard", err, gobridge.ErrInvalidCursor)
	}
	f.wantState(gobridge.StateDead, "a", "b")
}

// deadIDs pages through the dead letters that match a filter.
func (f *fixture) deadIDs(filter gobridge.Filter, limit int) []string {
	f.Helper()
	var out []string
	query := gobridge.DeadQuery{Filter: filter, Limit: limit}
	for range 1000 {
		page, err := f.store.QueryDead(f.Context(), query)
		if err != nil {
			f.Fatalf("QueryDead of %+v: %v", query, err)
		}
		if limit > 0 && len(page.Records) > limit {
			f.Fatalf("QueryDead of %d returned %d records", limit, len(page.Records))
		}
		out = append(out, ids(page.Records)...)
		if page.Cursor == "" {
			return out
		}
		query.Cursor = page.Cursor
	}
	f.Fatalf("QueryDead of %+v does not come to an end", query)
	return nil
}

func (f *fixture) wantDead(filter gobridge.Filter, want ...string) {
	f.Helper()
	if got := f.deadIDs(filter, 0); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("dead letters matching %+v are %q, want %q", filter, got, want)
	}
}

func deadLetterIsOneStep(f *fixture) {
	f.persist(record("witness"))
	f.claimExactly(1, 1, "witness")
	for n := range 40 {
		id := fmt.Sprintf("r-%d", n)
		f.persist(record(id))
		f.wantIDs(f.claim(1, 1, "witness"), id)
		err := f.store.DeadLetter(f.interrupted(n), token(1), burials(id))
		state := f.get(id).State
		listed := len(f.deadIDs(gobridge.Filter{EnvelopeID: id}, 0))
		switch {
		case state == gobridge.StateClaimed && listed == 0 && err != nil:
			f.bury(1, id)
		case state == gobridge.StateDead && listed == 1:
		default:
			f.Fatalf("after a DeadLetter cut off at look %d (error %v) the record is %s and %d times among the dead", n, err, state, listed)
		}
		if s := f.stats(part); s.Dead != int64(n+1) || s.Claimed != 1 || s.Pending != 0 {
			f.Fatalf("after %d burials Stats counts %d dead, %d claimed, %d pending", n+1, s.Dead, s.Claimed, s.Pending)
		}
	}
}

func deadLettersFullByCount(f *fixture) {
	f.persist(record("a"), record("b"), record("c", key("k")), record("tail", key("k")))
	f.claimExactly(1, 3, "a", "b", "c")
	f.bury(1, "a")
	err := f.store.DeadLetter(f.Context(), token(1), burials("b", "c"))
	f.wantSettleErrors(err, gobridge.ErrDeadLettersFull, "c")
	f.wantState(gobridge.StateDead, "a", "b")
	f.wantState(gobridge.StateClaimed, "c")
	f.wantCounters("refused for want of room", "c", counters{1, 0, 0})
	f.wantIDs(f.claim(1, 10, "c"))
	// Other partitions have room of their own, and room that is made is used.
	other := gobridge.NewPartition(route, "crm", 0)
	f.persist(record("d", in(other)))
	f.claimBy(gobridge.ClaimRequest{Partition: other, Token: token(1), Limit: 1, HeldKnown: true})
	burial := gobridge.Burial{Ref: gobridge.Ref{Partition: other, EnvelopeID: "d", Binding: "crm"}}
	if err := f.store.DeadLetter(f.Context(), token(1), []gobridge.Burial{burial}); err != nil {
		f.Fatalf("DeadLetter in another partition: %v", err)
	}
	f.redrive(gobridge.Filter{EnvelopeID: "a"})
	f.bury(1, "c")
	f.wantIDs(f.claim(1, 10), "tail", "a")
}

func deadLettersFullByBytes(f *fixture) {
	f.persist(record("a", payload(string(make([]byte, 990))), headers("12345", "67890")), record("b"), record("c"))
	f.claimExactly(1, 3, "a", "b", "c")
	f.bury(1, "a")
	if got := f.stats(part).DeadBytes; got != 1000 {
		f.Fatalf("Stats counts %d bytes of dead letters, want 1000: payload and headers", got)
	}
	f.wantSettleErrors(f.store.DeadLetter(f.Context(), token(1), burials("b")), gobridge.ErrDeadLettersFull, "b")
	f.wantState(gobridge.StateClaimed, "b")
	f.discard(gobridge.Filter{EnvelopeID: "a", States: []gobridge.State{gobridge.StateDead}})
	f.bury(1, "b", "c")
	f.wantDead(gobridge.Filter{}, "b", "c")
}

func queryDeadPagesByAge(f *fixture) {
	other := gobridge.NewPartition(route, "crm", 0)
	var want []string
	for i := range 23 {
		id := fmt.Sprintf("r-%d", (i*11)%23)
		f.kill("", id)
		want = append(want, id)
		dead := record(id, in(other))
		dead.State, dead.Reason = gobridge.StateDead, gobridge.ReasonFull
		f.persist(dead)
	}
	for _, limit := range []int{1, 5, 23, 100} {
		got := f.deadIDs(gobridge.Filter{Partition: part}, limit)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			f.Fatalf("pages of %d give %q, want %q", limit, got, want)
		}
		if all := f.deadIDs(gobridge.Filter{}, limit); len(all) != 2*len(want) {
			f.Fatalf("pages of %d over both partitions give %d records, want %d", limit, len(all), 2*len(want))
		}
	}
	f.wantFilterBy(gobridge.Filter{Partition: other}, want)
}

// wantFilterBy requires the dead letters of a filter, in this order.
func (f *fixture) wantFilterBy(filter gobridge.Filter, want []string) {
	f.Helper()
	if got := f.deadIDs(filter, 7); fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("dead letters matching %+v are %q, want %q", filter, got, want)
	}
}

func filterMatchesEveryFieldThatIsSet(f *fixture) {
	dead := func(id, k, reason, text string, p gobridge.Partition) {
		r := record(id, key(k), in(p))
		r.State, r.Reason, r.Error = gobridge.StateDead, reason, text
		f.persist(r)
		f.clock.Advance(time.Minute)
	}
	dead("a", "k", gobridge.ReasonPermanent, "401 Unauthorized: token\nexpired", part)
	dead("b", "", gobridge.ReasonExhausted, "503 Service Unavailable", part)
	dead("c", "K", gobridge.ReasonExhausted, "401*", "orders/crm/0")
	dead("d", "k", gobridge.ReasonExhausted, "", "orders/mail/1")
	dead("e", "k#", gobridge.ReasonFull, "dial: 401", "order/mail/0")
	tests := []struct {
		filter gobridge.Filter
		want   []string
	}{
		{gobridge.Filter{}, []string{"a", "b", "c", "d", "e"}},
		{gobridge.Filter{Route: "orders"}, []string{"a", "b", "c", "d"}},
		{gobridge.Filter{Route: "order"}, []string{"e"}},
		{gobridge.Filter{Route: "ord"}, nil},
		{gobridge.Filter{Binding: "mail"}, []string{"a", "b", "d", "e"}},
		{gobridge.Filter{Route: "orders", Binding: "mail"}, []string{"a", "b", "d"}},
		{gobridge.Filter{Partition: part}, []string{"a", "b"}},
		{gobridge.Filter{EnvelopeID: "b"}, []string{"b"}},
		{gobridge.Filter{OrderingKey: "k", HasKey: true}, []string{"a", "d"}},
		{gobridge.Filter{HasKey: true}, []string{"b"}},
		{gobridge.Filter{Reason: gobridge.ReasonExhausted}, []string{"b", "c", "d"}},
		{gobridge.Filter{Reason: "exhaust"}, nil},
		{gobridge.Filter{Error: "401*"}, []string{"a", "c"}},
		{gobridge.Filter{Error: "*401*"}, []string{"a", "c", "e"}},
		{gobridge.Filter{Error: "*expired"}, []string{"a"}},
		{gobridge.Filter{Error: "503 S*U*e"}, []string{"b"}},
		{gobridge.Filter{Error: "503 s*"}, nil},
		{gobridge.Filter{Error: "401"}, nil},
		{gobridge.Filter{Error: "50_ Service*"}, nil},
		{gobridge.Filter{EndedFrom: start.Add(2 * time.Minute)}, []string{"c", "d", "e"}},
		{gobridge.Filter{EndedBefore: start.Add(2 * time.Minute)}, []string{"a", "b"}},
		{gobridge.Filter{Reason: gobridge.ReasonExhausted, OrderingKey: "k", HasKey: true, Route: "orders"}, []string{"d"}},
	}
	for _, tt := range tests {
		got := f.deadIDs(tt.filter, 0)
		set := map[string]bool{}
		for _, id := range got {
			set[id] = true
		}
		for _, id := range tt.want {
			if !set[id] {
				f.Fatalf("dead letters matching %+v are %q, want %q", tt.filter, got, tt.want)
			}
		}
		if len(got) != len(tt.want) {
			f.Fatalf("dead letters matching %+v are %q, want %q", tt.filter, got, tt.want)
		}
	}
}
