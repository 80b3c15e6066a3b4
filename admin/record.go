package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"gobridge"
	"gobridge/operate"
)

// recordJSON is a record with everything that it is: the message as in a line of an
// export, and what that does not say.
type recordJSON struct {
	Letter json.RawMessage `json:"message"`
	// Withheld says that the payload is left out, for the caller may not see it.
	Withheld     bool      `json:"payload_withheld,omitempty"`
	PayloadBytes int       `json:"payload_bytes"`
	State        string    `json:"state"`
	RetryAt      time.Time `json:"retry_at,omitzero"`
	CreatedAt    time.Time `json:"stamp,omitzero"`
	StoredAt     time.Time `json:"stored_at,omitzero"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	Seq          int64     `json:"seq"`
	Claims       int       `json:"claims"`
	Attempts     int       `json:"attempts"`
	Unsettled    int       `json:"unsettled,omitempty"`
	Owner        string    `json:"owner,omitempty"`
	Version      int64     `json:"version,omitempty"`
	ClaimedAt    time.Time `json:"claimed_at,omitzero"`
}

var states = []gobridge.State{
	gobridge.StatePending, gobridge.StateClaimed, gobridge.StateDelivered,
	gobridge.StateExpired, gobridge.StateDiscarded, gobridge.StateDead,
}

// toRecordJSON leaves the payload out unless it may be seen.
func toRecordJSON(r gobridge.Record, payload bool) (recordJSON, error) {
	out := recordJSON{
		Withheld: !payload && len(r.Envelope.Payload) > 0, PayloadBytes: len(r.Envelope.Payload),
		State: r.State.String(), RetryAt: r.RetryAt, CreatedAt: r.CreatedAt, StoredAt: r.StoredAt, EndedAt: r.EndedAt, Seq: r.Seq,
		Claims: r.ReplayCount, Attempts: r.Attempts, Unsettled: r.Unsettled,
		Owner: r.ClaimedBy.Owner, Version: r.ClaimedBy.Version, ClaimedAt: r.ClaimedAt,
	}
	if !payload {
		r.Envelope.Payload = nil
	}
	var err error
	out.Letter, err = operate.EncodeLetter(&r)
	return out, err
}

func (j *recordJSON) record() (gobridge.Record, error) {
	r, err := operate.DecodeLetter(j.Letter)
	if err != nil {
		return r, err
	}
	for _, s := range states {
		if s.String() == j.State {
			r.State = s
		}
	}
	if r.State.String() != j.State {
		return r, fmt.Errorf("unknown state %q", j.State)
	}
	r.RetryAt, r.CreatedAt, r.StoredAt, r.EndedAt, r.Seq = j.RetryAt, j.CreatedAt, j.StoredAt, j.EndedAt, j.Seq
	r.ReplayCount, r.Attempts, r.Unsettled = j.Claims, j.Attempts, j.Unsettled
	r.ClaimedBy = gobridge.Token{Owner: j.Owner, Version: j.Version}
	r.ClaimedAt = j.ClaimedAt
	return r, nil
}

// controlJSON is a pause or a halt.
type controlJSON struct {
	Kind    string       `json:"kind"`
	Route   string       `json:"route"`
	Binding string       `json:"binding,omitempty"`
	Key     operate.Text `json:"key,omitempty"`
	ID      operate.Text `json:"id,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	By      string       `json:"by,omitempty"`
	Reason  string       `json:"reason,omitempty"`
}

func toControlJSON(c gobridge.Control) controlJSON {
	return controlJSON{
		Kind: string(c.Kind), Route: c.Route, Binding: c.Binding, Key: operate.Text(c.OrderingKey), ID: operate.Text(c.EnvelopeID),
		Since: c.Since, By: c.By, Reason: c.Reason,
	}
}

func (j *controlJSON) control() gobridge.Control {
	return gobridge.Control{
		Kind: gobridge.ControlKind(j.Kind), Route: j.Route, Binding: j.Binding, OrderingKey: string(j.Key), EnvelopeID: string(j.ID),
		Since: j.Since, By: j.By, Reason: j.Reason,
	}
}

// auditJSON is an entry of the audit.
type auditJSON struct {
	At     time.Time    `json:"at"`
	Action string       `json:"action"`
	Scope  operate.Text `json:"scope"`
	Count  int64        `json:"count,omitempty"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
}

// statsJSON counts what is left.
type statsJSON struct {
	Pending int64 `json:"pending"`
	Claimed int64 `json:"claimed"`
	Dead    int64 `json:"dead"`
}
