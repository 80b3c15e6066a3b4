package dynamodb

import (
	"context"
	"errors"
	"slices"
	"time"

	"gobridge"
)

// claimRounds is how often a claim selects anew when all that it had selected
// was gone before it could be claimed.
const claimRounds = 3

// Claim implements [gobridge.Outbox].
func (s *Store) Claim(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
	c := call{op: "claim", partition: request.Partition}
	if !request.Token.Valid() {
		return nil, fail(c.op, c.partition, gobridge.ErrInvalidToken)
	}
	out, err := s.claim(ctx, c, &request)
	return out, fail(c.op, c.partition, err)
}

func (s *Store) claim(ctx context.Context, c call, request *gobridge.ClaimRequest) ([]gobridge.Record, error) {
	if err := checkPartition(c.partition); err != nil {
		return nil, err
	}
	f, revision, err := s.readState(ctx, c)
	if err != nil {
		return nil, err
	}
	if f, err = s.raiseFrom(ctx, c, f, request.Token); err != nil || request.Limit <= 0 {
		return nil, err
	}
	controls, err := s.controlsAt(ctx, c, revision)
	if err != nil {
		return nil, err
	}
	cl := newClaim(s, c, request, f, controls)
	if controls.pause(cl.route, cl.binding) != nil {
		return nil, nil
	}
	for range claimRounds {
		rows, err := cl.choose(ctx)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		got, err := cl.take(ctx, rows)
		if err != nil || len(got) > 0 {
			return got, err
		}
	}
	return nil, nil
}

// unheardOf reports whether no row can be of a partition of that name.
func unheardOf(p gobridge.Partition) bool { return len(p) > limits.MaxPartition }

func checkPartition(p gobridge.Partition) error {
	if unheardOf(p) {
		return &gobridge.FieldError{Field: "Partition", Problem: "bytes", Size: int64(len(p)), Limit: int64(limits.MaxPartition)}
	}
	return nil
}

// readState reads the fence row and the revision of the controls, with one
// request, and makes the fence row if there is none.
func (s *Store) readState(ctx context.Context, c call) (f fence, revision int64, err error) {
	fenceKey := key(partitionKey(c.partition), fenceSK)
	for {
		items, err := s.batchGet(ctx, c, []item{fenceKey, key(controlsPK, revisionSK)}, "")
		if err != nil {
			return fence{}, 0, err
		}
		found := false
		for _, it := range items {
			p := parser{it: it}
			if p.text(attrSK) == revisionSK {
				revision = p.num("revision")
				continue
			}
			if f, err = parseFence(it); err != nil {
				return fence{}, 0, err
			}
			found = true
		}
		if found {
			return f, revision, nil
		}
		st := s.state(c.partition)
		st.mu.Lock()
		st.known = false
		st.mu.Unlock()
		if err := s.ensure(ctx, c, c.partition); err != nil {
			return fence{}, 0, err
		}
	}
}

// claim is a claim on its way.
type claim struct {
	store   *Store
	call    call
	request *gobridge.ClaimRequest
	state   *state
	pk      string
	// route and binding are the parts of the partition's name.
	route, binding string
	controls       *controlSet
	held           map[string]bool
	now            time.Time
	// bound is the newest Seq that had been given out when the claim began. What
	// came after may have come while the partition was read, ahead of the place
	// that had been read and behind it: what is ahead must not be taken without
	// what is behind.
	bound int64
}

func newClaim(s *Store, c call, request *gobridge.ClaimRequest, f fence, controls *controlSet) *claim {
	cl := &claim{
		store: s, call: c, request: request, state: s.state(c.partition), pk: partitionKey(c.partition),
		controls: controls, held: map[string]bool{}, now: clean(s.now()), bound: f.seq,
	}
	cl.route, cl.binding, _, _ = c.partition.Split()
	if request.HeldKnown {
		for _, ref := range request.Held {
			if ref.Partition == c.partition {
				cl.held[recordKey(ref.EnvelopeID, ref.Binding)] = true
			}
		}
	}
	return cl
}

// claimable reports whether a record could be claimed if all older ones of its
// key are.
func (cl *claim) claimable(r *row) bool {
	if cl.held[r.sk] || cl.controls.halt(cl.route, cl.binding, r) != nil {
		return false
	}
	switch r.State {
	case gobridge.StatePending:
		return !cl.now.Before(r.DueAt())
	case gobridge.StateClaimed:
		newest := cl.request.Token.Version
		if r.ClaimedBy.Version < newest || cl.request.HeldKnown && r.ClaimedBy.Version == newest {
			return true
		}
		return !cl.request.HeldKnown && cl.now.Sub(r.ClaimedAt) >= cl.store.options.StaleWindow
	}
	return false
}

// choose returns what is to be claimed, whole, in ascending age: from the index
// if no record has a key, and else from the partition.
func (cl *claim) choose(ctx context.Context) ([]*row, error) {
	cl.state.mu.Lock()
	keyed := cl.state.keyed
	cl.state.mu.Unlock()
	if !keyed {
		rows, met, err := cl.fromIndex(ctx)
		if err != nil || !met {
			return rows, err
		}
		cl.store.warnedKeys.Do(func() {
			cl.store.log.InfoContext(ctx, "records have ordering keys: claims read the whole partition, for an index can't tell "+
				"that no older record of a key is left", "partition", string(cl.call.partition))
		})
	}
	return cl.fromPartition(ctx)
}

func (cl *claim) setKeyed(keyed bool) {
	cl.state.mu.Lock()
	defer cl.state.mu.Unlock()
	cl.state.keyed = keyed
}

// take claims rows and returns those that it got. What is durably claimed is
// returned also if a later step fails, unless the partition has been lost.
func (cl *claim) take(ctx context.Context, rows []*row) ([]gobridge.Record, error) {
	s := cl.store
	cm := &commit{call: cl.call, version: cl.request.Token.Version, keys: true, nonce: newNonce()}
	for _, r := range rows {
		cm.changes = append(cm.changes, cl.change(r))
	}
	err := s.run(ctx, cm)
	if errors.Is(err, gobridge.ErrStaleFencingToken) {
		return nil, err
	}
	var out []gobridge.Record
	for _, ch := range cm.changes {
		if ch.done {
			out = append(out, cl.claimed(ch.row))
		}
	}
	if len(out) == 0 {
		return nil, err
	}
	if err != nil {
		s.observe(Event{Metric: DynamoDBOutboxClaimTruncated, Partition: cl.call.partition, Operation: cl.call.op, Value: 1})
		s.log.WarnContext(ctx, "claim cut short", "partition", string(cl.call.partition), "claimed", len(out),
			"selected", len(rows), "error", err)
	}
	return out, nil
}

// change is the claim of a row. It changes nothing that the index has.
func (cl *claim) change(r *row) *change {
	ch := &change{row: r, to: gobridge.StateClaimed, values: item{
		":state": str(gobridge.StateClaimed.String()), ":owner": text(cl.request.Token.Owner),
		":version": num(cl.request.Token.Version), ":at": num(nanos(cl.now)), ":replays": num(r.ReplayCount + 1),
	}}
	ch.update = "SET #state = :state, #owner = :owner, #version = :version, #claimed_at = :at, #replay_count = :replays, #nonce = :nonce"
	if r.State == gobridge.StateClaimed {
		ch.update += ", #unsettled = :unsettled"
		ch.values[":unsettled"] = num(r.Unsettled + 1)
	}
	ch.update += " REMOVE #settled"
	return ch
}

// claimed is the record as it is once it is claimed.
func (cl *claim) claimed(r *row) gobridge.Record {
	out := r.Record
	out.ReplayCount++
	if out.State == gobridge.StateClaimed {
		out.Unsettled++
	}
	out.State, out.ClaimedBy, out.ClaimedAt = gobridge.StateClaimed, cl.request.Token, cl.now
	return out
}

// fetch reads selected records and returns those that can still be claimed, in
// their order, without the younger ones of the key of one that can't.
func (cl *claim) fetch(ctx context.Context, picked []candidate) ([]*row, error) {
	sks := make([]string, len(picked))
	for i, c := range picked {
		sks[i] = c.sk
	}
	found, err := cl.store.getRows(ctx, cl.call, cl.pk, sks, "")
	if err != nil {
		return nil, err
	}
	gone := map[string]bool{}
	var out []*row
	for _, c := range picked {
		r := found[c.sk]
		switch {
		case c.key != "" && gone[c.key]:
		case r == nil || r.age() != c.age || !cl.claimable(r):
			gone[c.key] = true
		default:
			out = append(out, r)
		}
	}
	return out, nil
}

// byAge sorts rows, oldest first.
func byAge(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		if a.age().before(b.age()) {
			return -1
		}
		return 1
	})
}
