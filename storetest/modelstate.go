package storetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// model is the contract as plain code: maps, sorting and no thought of cost.
type model struct {
	options  Options
	records  map[gobridge.Ref]*modelRecord
	parts    map[gobridge.Partition]*modelPartition
	controls []gobridge.Control
}

type modelPartition struct {
	fence   gobridge.Token
	lastSeq int64
	newest  time.Time
}

// modelRecord is a record as the store should have it.
type modelRecord struct {
	gobridge.Record
	// settledBy and settledTo are of the last settle since the last claim.
	settledBy gobridge.Token
	settledTo gobridge.State
}

func newModel(options Options) *model {
	return &model{
		options: options,
		records: map[gobridge.Ref]*modelRecord{},
		parts:   map[gobridge.Partition]*modelPartition{},
	}
}

func (m *model) part(p gobridge.Partition) *modelPartition {
	if m.parts[p] == nil {
		m.parts[p] = &modelPartition{}
	}
	return m.parts[p]
}

// sorted returns the partition's records for which keep is true, oldest first.
func (m *model) sorted(p gobridge.Partition, keep func(*modelRecord) bool) []*modelRecord {
	var out []*modelRecord
	for _, r := range m.records {
		if r.Partition == p && keep(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *modelRecord) int {
		if a.Older(&b.Record) {
			return -1
		}
		return 1
	})
	return out
}

func (m *model) count(p gobridge.Partition, state gobridge.State) int {
	return len(m.sorted(p, func(r *modelRecord) bool { return r.State == state }))
}

// persist stores what is new, without an age, and returns it.
func (m *model) persist(now time.Time, records []gobridge.Record) (fresh []*modelRecord, want error) {
	reused := map[string]bool{}
	for i := range records {
		r := &records[i]
		if r.CreatedAt.After(now.Add(m.options.MaxSkew)) {
			return nil, gobridge.ErrInvalidRecord
		}
		if held := m.records[r.Ref()]; held != nil && held.ContentHash != messaging.ContentHash(&r.Envelope) {
			reused[r.Envelope.ID] = true
		}
	}
	for _, r := range records {
		if reused[r.Envelope.ID] || m.records[r.Ref()] != nil {
			continue
		}
		stored := &modelRecord{Record: r}
		stored.ContentHash = messaging.ContentHash(&r.Envelope)
		stored.StoredAt = now
		if r.State == gobridge.StateDead {
			stored.EndedAt = now
		}
		m.records[r.Ref()] = stored
		fresh = append(fresh, stored)
	}
	switch {
	case len(reused) > 0:
		return fresh, gobridge.ErrIdentityReused
	case len(fresh) == 0 && len(records) > 0:
		return nil, gobridge.ErrDuplicateRecord
	}
	return fresh, nil
}

// fenced checks a token and raises the mark.
func (m *model) fenced(p gobridge.Partition, token gobridge.Token) error {
	if !token.Valid() {
		return gobridge.ErrInvalidToken
	}
	part := m.part(p)
	if token.Version < part.fence.Version {
		return gobridge.ErrStaleFencingToken
	}
	part.fence = token
	return nil
}

// held returns why a control holds the record, or nothing.
func (m *model) held(r *modelRecord) (why gobridge.Cause) {
	route, _, _, _ := r.Partition.Split()
	for _, c := range m.controls {
		k := r.Envelope.OrderingKey
		switch {
		case c.Route != route || c.Binding != "" && c.Binding != r.Binding:
		case c.Kind == gobridge.Pause:
			return gobridge.CausePaused
		case k != "" && c.OrderingKey == k || k == "" && c.EnvelopeID == r.Envelope.ID:
			why = gobridge.CauseHalted
		}
	}
	return why
}

// cause is why a record is not being delivered.
func (m *model) cause(r *modelRecord, now time.Time) gobridge.Cause {
	if r.State.Ended() {
		return gobridge.CauseEnded
	}
	if why := m.held(r); why != "" {
		return why
	}
	older := m.sorted(r.Partition, func(other *modelRecord) bool {
		k := r.Envelope.OrderingKey
		return k != "" && other.Envelope.OrderingKey == k && !other.State.Ended() && other.Older(&r.Record)
	})
	switch {
	case r.State == gobridge.StateClaimed && r.ClaimedBy.Version < m.part(r.Partition).fence.Version:
		return gobridge.CauseStranded
	case r.State == gobridge.StateClaimed:
		return gobridge.CauseClaimed
	case len(older) > 0:
		return gobridge.CauseBlocked
	case now.Before(r.DueAt()):
		return gobridge.CauseNotDue
	case r.Expired(now):
		return gobridge.CauseExpired
	}
	return gobridge.CauseClaimable
}

func (m *model) claimable(r *modelRecord, now time.Time, request *gobridge.ClaimRequest) bool {
	switch {
	case m.held(r) != "", request.HeldKnown && slices.Contains(request.Held, r.Ref()):
		return false
	case r.State == gobridge.StatePending:
		return !now.Before(r.DueAt())
	case request.HeldKnown:
		return true
	case r.ClaimedBy.Version < request.Token.Version:
		return true
	}
	return now.Sub(r.ClaimedAt) >= m.options.StaleWindow
}

// claim walks the partition from its oldest record to its youngest.
func (m *model) claim(now time.Time, request gobridge.ClaimRequest) ([]*modelRecord, error) {
	if err := m.fenced(request.Partition, request.Token); err != nil {
		return nil, err
	}
	blocked := map[string]bool{}
	var out []*modelRecord
	size := int64(0)
	for _, r := range m.sorted(request.Partition, func(r *modelRecord) bool { return !r.State.Ended() }) {
		k := r.Envelope.OrderingKey
		if k != "" && blocked[k] {
			continue
		}
		if !m.claimable(r, now, &request) {
			blocked[k] = true
			continue
		}
		size += contentSize(&r.Record)
		if len(out) >= request.Limit || request.MaxBytes > 0 && len(out) > 0 && size > request.MaxBytes {
			break
		}
		out = append(out, r)
	}
	for _, r := range out {
		r.ReplayCount++
		if r.State == gobridge.StateClaimed {
			r.Unsettled++
		}
		r.State, r.ClaimedBy, r.ClaimedAt = gobridge.StateClaimed, request.Token, now
		r.settledBy = gobridge.Token{}
	}
	return out, nil
}

func contentSize(r *gobridge.Record) int64 {
	return int64(len(r.Envelope.Payload) + r.Envelope.Headers.Size())
}

// errEither says that the contract leaves the answer open.
var errEither = errors.New("success or ErrStaleFencingToken")

// settle ends or releases one record, unless it is not the token's.
func (m *model) settle(token gobridge.Token, ref gobridge.Ref, to gobridge.State, change func(*modelRecord)) error {
	r := m.records[ref]
	switch {
	case r == nil:
		return gobridge.ErrStaleFencingToken
	case r.State == gobridge.StateClaimed && r.ClaimedBy == token:
	case r.State == gobridge.StateClaimed || r.settledBy != token:
		return gobridge.ErrStaleFencingToken
	case r.settledTo == to && r.State == to:
		return nil // the same once more
	case r.settledTo == to || r.Redrives > 0 && r.State == gobridge.StatePending:
		return errEither // changed by others since
	default:
		return gobridge.ErrStaleFencingToken
	}
	if to == gobridge.StateDead && int64(m.count(ref.Partition, to)) >= m.options.MaxDead {
		return gobridge.ErrDeadLettersFull
	}
	r.State, r.Unsettled, r.settledBy, r.settledTo = to, 0, token, to
	change(r)
	return nil
}

// sweep does the housekeeping without a limit.
func (m *model) sweep(now time.Time, request gobridge.SweepRequest) (result gobridge.SweepResult, err error) {
	if err := m.fenced(request.Partition, request.Token); err != nil {
		return result, err
	}
	for _, r := range m.sorted(request.Partition, func(*modelRecord) bool { return true }) {
		switch {
		case r.State == gobridge.StatePending && r.Expired(now):
			r.State, r.Reason, r.EndedAt = gobridge.StateExpired, gobridge.ReasonExpired, now
			result.Expired++
		case r.State == gobridge.StatePending:
			if most := now.Add(request.MaxBackoff); request.MaxBackoff > 0 && r.RetryAt.After(most) {
				r.RetryAt = most
			}
		case r.State == gobridge.StateClaimed:
		case r.State == gobridge.StateDead:
			if !now.Before(r.EndedAt.Add(m.options.DeadRetention)) {
				r.State, r.Reason, r.EndedAt = gobridge.StateDiscarded, gobridge.ReasonAged, now
				result.Aged++
			}
		case !now.Before(r.EndedAt.Add(m.options.Retention)):
			delete(m.records, r.Ref())
			result.Purged++
		}
	}
	return result, nil
}

// matches reports whether a record is selected by the fields of a filter that
// the model uses.
func (m *model) matches(r *modelRecord, filter gobridge.Filter) bool {
	return (filter.Partition == "" || filter.Partition == r.Partition) &&
		(filter.EnvelopeID == "" || filter.EnvelopeID == r.Envelope.ID) &&
		(!filter.HasKey || filter.OrderingKey == r.Envelope.OrderingKey)
}

// redrive takes dead records back, without their new age, and returns them in
// the order of their old one.
func (m *model) redrive(now time.Time, filter gobridge.Filter) []*modelRecord {
	var out []*modelRecord
	for _, p := range m.partitions() {
		for _, r := range m.sorted(p, func(r *modelRecord) bool {
			return r.State == gobridge.StateDead && !r.Expired(now) && m.matches(r, filter)
		}) {
			r.State, r.ReplayCount, r.Attempts, r.Unsettled = gobridge.StatePending, 0, 0, 0
			r.Redrives++
			r.CreatedAt, r.Seq, r.RetryAt = time.Time{}, 0, time.Time{}
			out = append(out, r)
		}
	}
	return out
}

// discard ends pending, stranded and dead records.
func (m *model) discard(now time.Time, request gobridge.BulkRequest) (out []*modelRecord) {
	for _, r := range m.records {
		state := r.State
		if state == gobridge.StateClaimed && r.ClaimedBy.Version < m.part(r.Partition).fence.Version {
			state = gobridge.StatePending
		}
		if slices.Contains(request.Filter.States, state) && m.matches(r, request.Filter) {
			r.State, r.Reason, r.EndedAt = gobridge.StateDiscarded, request.Reason, now
			out = append(out, r)
		}
	}
	return out
}

func (m *model) partitions() []gobridge.Partition {
	var out []gobridge.Partition
	for p := range m.parts {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// control finds the index of a control in force, or -1.
func (m *model) control(c gobridge.Control) int {
	return slices.IndexFunc(m.controls, func(d gobridge.Control) bool {
		return c.Kind == d.Kind && c.Route == d.Route && c.Binding == d.Binding &&
			c.OrderingKey == d.OrderingKey && c.EnvelopeID == d.EnvelopeID
	})
}

// idsOfModel lists records for messages.
func idsOfModel(records []*modelRecord) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = r.Envelope.ID
	}
	return out
}

func joined(ids []string) string { return "[" + strings.Join(ids, " ") + "]" }
