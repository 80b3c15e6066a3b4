package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// step does one random operation.
func (r *modelRun) step() {
	p := r.processes[r.rng.IntN(len(r.processes))]
	p.clock.Advance(time.Duration(r.rng.Int64N(int64(3*time.Second))) + 1)
	switch n := r.rng.IntN(100); {
	case n < 27:
		r.persistSome(p)
	case n < 50:
		r.claimSome(p)
	case n < 70:
		r.settleSome(p)
	case n < 74:
		r.takeOver(p)
	case n < 76:
		r.crash(p)
	case n < 80:
		r.moveClock(p)
	case n < 85:
		r.sweepSome(p)
	case n < 89:
		r.redriveSome(p)
	case n < 91:
		r.discardSome(p)
	case n < 97:
		r.controlSome(p)
	default:
		r.retrySome(p)
	}
}

func pick[T any](r *modelRun, from []T) T { return from[r.rng.IntN(len(from))] }

func (r *modelRun) randomKey() string { return pick(r, []string{"", "", "a", "b", "c", "\xff#", "a#"}) }

// newRecords makes the records of one call: envelopes for one or two bindings,
// some persisted before, some with other content than before.
func (r *modelRun) newRecords(p *modelProcess) []gobridge.Record {
	var call []gobridge.Record
	now := p.clock.Now()
	sent := r.sent
	for range 1 + r.rng.IntN(4) {
		if len(sent) > 0 && r.chance(15) {
			call = append(call, r.again(call, pick(r, sent)))
			continue
		}
		r.named++
		one := record(fmt.Sprintf("m%d", r.named), key(r.randomKey()), in(pick(r, modelPartitions())))
		one.Envelope.Headers = messaging.Headers{"n": fmt.Sprint(r.named)}
		if r.chance(12) {
			one.Envelope.ExpiresAt = now.Add(time.Duration(r.rng.Int64N(int64(2 * time.Hour))))
		}
		if r.chance(12) {
			one.Envelope.NotBefore = now.Add(time.Duration(r.rng.Int64N(int64(10 * time.Minute))))
		}
		if r.chance(12) {
			one.CreatedAt = now.Add(30*time.Minute - time.Duration(r.rng.Int64N(int64(2*time.Hour))))
		}
		if r.chance(4) && r.model.count(one.Partition, gobridge.StateDead) < int(r.options.MaxDead)/2 {
			dead()(&one)
		}
		call = append(call, one)
		if r.chance(25) {
			other := one
			other.State, other.Reason, other.Error = gobridge.StatePending, "", ""
			in(pick(r, modelPartitions()))(&other)
			call = append(call, other)
		}
		r.sent = append(r.sent, call[len(call)-1])
	}
	return call
}

// again is a record as it is handed over once more, perhaps with other content;
// within one call an ID has one content.
func (r *modelRun) again(call []gobridge.Record, record gobridge.Record) gobridge.Record {
	record.State, record.Reason, record.Error = gobridge.StatePending, "", ""
	if r.chance(20) {
		record.Envelope.Payload = []byte("reused")
	}
	for i := range call {
		if call[i].Envelope.ID == record.Envelope.ID {
			record.Envelope = call[i].Envelope
		}
	}
	return record
}

func (r *modelRun) persistSome(p *modelProcess) {
	call := r.newRecords(p)
	if r.chance(2) {
		call[len(call)-1].CreatedAt = p.clock.Now().Add(2 * r.options.MaxSkew)
	}
	for tries := 0; tries < 3; tries++ {
		told := r.attempt(fmt.Sprintf("Persist %s", describe(call)), p,
			func(ctx context.Context) error { return p.store.Persist(ctx, call) },
			func() error {
				fresh, err := r.model.persist(p.clock.Now(), call)
				r.learnAges(p, fresh)
				return err
			})
		if told {
			break
		}
		p.clock.Advance(time.Millisecond)
	}
}

func describe(call []gobridge.Record) string {
	out := make([]string, len(call))
	for i, r := range call {
		out[i] = fmt.Sprintf("%s(%q)@%s", r.Envelope.ID, r.Envelope.OrderingKey, r.Partition[len("orders/"):])
	}
	return joined(out)
}

// learnAges takes over the ages that the store gave to records, in this order,
// and checks them.
func (r *modelRun) learnAges(p *modelProcess, records []*modelRecord) {
	for _, m := range records {
		part := r.model.part(m.Partition)
		got, err := r.store.Get(r.Context(), m.Ref())
		if err != nil {
			r.failf("record %s, just stored: %v", m.Ref(), err)
		}
		switch {
		case got.Seq <= part.lastSeq:
			r.failf("record %s has Seq %d, not above %d", m.Ref(), got.Seq, part.lastSeq)
		case !m.CreatedAt.IsZero() && !got.CreatedAt.Equal(m.CreatedAt):
			r.failf("record %s has CreatedAt %v, want the explicit %v", m.Ref(), got.CreatedAt, m.CreatedAt)
		case m.CreatedAt.IsZero() && got.CreatedAt.Before(part.newest):
			r.failf("record %s is stamped %v, before the newest stamp %v", m.Ref(), got.CreatedAt, part.newest)
		case m.CreatedAt.IsZero() && got.CreatedAt.After(p.clock.Now()) && got.CreatedAt.After(part.newest):
			r.failf("record %s is stamped %v, after both the clock %v and the newest stamp %v",
				m.Ref(), got.CreatedAt, p.clock.Now(), part.newest)
		}
		m.Seq, m.CreatedAt = got.Seq, got.CreatedAt
		part.lastSeq = got.Seq
		if got.CreatedAt.After(part.newest) {
			part.newest = got.CreatedAt
		}
	}
}

// holding returns what the process holds, in an order that repeats.
func (p *modelProcess) holding() []gobridge.Ref {
	return slices.SortedFunc(maps.Keys(p.held), compareRefs)
}

func (r *modelRun) claimSome(p *modelProcess) {
	part := pick(r, modelPartitions())
	if p.tokens[part] == (gobridge.Token{}) {
		r.newToken(p, part)
	}
	request := gobridge.ClaimRequest{Partition: part, Token: p.tokens[part], Limit: r.rng.IntN(13), HeldKnown: r.chance(85)}
	if r.chance(15) {
		request.MaxBytes = 1 + r.rng.Int64N(60)
	}
	for _, ref := range p.holding() {
		if request.HeldKnown && ref.Partition == part {
			request.Held = append(request.Held, ref)
		}
	}
	var got []gobridge.Record
	var want []*modelRecord
	what := fmt.Sprintf("Claim %d of %s by %s, %d bytes, held known %v: %d", request.Limit, part, request.Token,
		request.MaxBytes, request.HeldKnown, len(request.Held))
	told := r.attempt(what, p, func(ctx context.Context) (err error) {
		got, err = p.store.Claim(ctx, request)
		return err
	}, func() (err error) {
		want, err = r.model.claim(p.clock.Now(), request)
		return err
	})
	if told {
		if !slices.Equal(ids(got), idsOfModel(want)) {
			r.failf("claimed %s, want %s", joined(ids(got)), joined(idsOfModel(want)))
		}
		for i := range got {
			if a, b := summary(&got[i]), summary(&want[i].Record); a != b {
				r.failf("Claim returned %s as\n%s, want\n%s", got[i].Ref(), a, b)
			}
			p.held[got[i].Ref()] = true
		}
	}
	r.compareSome(want)
}

func (r *modelRun) compareSome(records []*modelRecord) {
	r.Helper()
	for _, m := range records {
		r.compare(m)
	}
}

func (r *modelRun) newToken(p *modelProcess, part gobridge.Partition) {
	r.versions[part] += 1 + r.rng.Int64N(3)
	p.tokens[part] = gobridge.Token{Owner: p.name, Version: r.versions[part]}
}

func (r *modelRun) takeOver(p *modelProcess) {
	part := pick(r, modelPartitions())
	r.newToken(p, part)
	r.tracef(p, "takes over %s as %s", part, p.tokens[part])
}

func (r *modelRun) crash(p *modelProcess) {
	p.forget()
	r.tracef(p, "crashes and forgets what it held")
}

func (r *modelRun) moveClock(p *modelProcess) {
	d := time.Duration(r.rng.Int64N(int64(20*time.Minute))) + 1
	if r.chance(30) {
		d = -d
	}
	if r.chance(10) {
		d *= 6
	}
	p.clock.Advance(d)
	r.tracef(p, "the clock moves by %v", d)
}

// settleSome settles a few of the records that the process holds, or believes
// that it holds, in one of the ways.
func (r *modelRun) settleSome(p *modelProcess) {
	var refs []gobridge.Ref
	for _, ref := range p.holding() {
		if m := r.model.records[ref]; m != nil && r.chance(60) {
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 {
		return
	}
	// One call has one token: that of the first record's claim, as far as the
	// process knows it.
	part := refs[0].Partition
	refs = slices.DeleteFunc(refs, func(ref gobridge.Ref) bool { return ref.Partition != part })
	token := p.tokens[part]
	if m := r.model.records[refs[0]]; m.ClaimedBy.Owner == p.name {
		token = m.ClaimedBy
	}
	if !token.Valid() {
		return
	}
	s := r.newSettle(p, token, refs)
	for tries := 0; tries < 3; tries++ {
		if r.settleOnce(p, s) {
			break
		}
	}
	if r.chance(10) {
		r.settleOnce(p, s) // the same again
	}
	for _, ref := range refs {
		delete(p.held, ref)
		if m := r.model.records[ref]; m != nil {
			r.compare(m)
		}
	}
}

func compareRefs(a, b gobridge.Ref) int {
	return slices.Compare([]string{string(a.Partition), a.EnvelopeID, a.Binding}, []string{string(b.Partition), b.EnvelopeID, b.Binding})
}

func (r *modelRun) sweepSome(p *modelProcess) {
	part := pick(r, modelPartitions())
	request := gobridge.SweepRequest{Partition: part, Token: p.tokens[part], Limit: 10_000}
	if r.chance(50) {
		request.MaxBackoff = time.Minute * time.Duration(1+r.rng.IntN(10))
	}
	var got, want gobridge.SweepResult
	told := r.attempt(fmt.Sprintf("Sweep %s by %s, backoff %v", part, request.Token, request.MaxBackoff), p,
		func(ctx context.Context) (err error) {
			got, err = p.store.Sweep(ctx, request)
			return err
		}, func() (err error) {
			want, err = r.model.sweep(p.clock.Now(), request)
			return err
		})
	got.Clamped, want.Clamped = 0, 0
	if told && got != want {
		r.failf("the sweep did %+v, want %+v", got, want)
	}
}
