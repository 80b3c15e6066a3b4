package operate

import (
	"time"

	"gobridge"
)

// RecordView is a record for people and scripts, without its payload.
type RecordView struct {
	Partition    string    `json:"partition"`
	ID           string    `json:"id"`
	Key          string    `json:"key,omitempty"`
	Subject      string    `json:"subject,omitempty"`
	State        string    `json:"state"`
	Seq          int64     `json:"seq"`
	StoredAt     time.Time `json:"stored_at,omitzero"`
	NotBefore    time.Time `json:"not_before,omitzero"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
	RetryAt      time.Time `json:"retry_at,omitzero"`
	EndedAt      time.Time `json:"ended_at,omitzero"`
	Claims       int       `json:"claims"`
	Attempts     int       `json:"attempts"`
	Redrives     int       `json:"redrives"`
	Reason       string    `json:"reason,omitempty"`
	Error        string    `json:"error,omitempty"`
	PayloadBytes int       `json:"payload_bytes,omitempty"`
}

// ViewOf returns what is shown of a record.
func ViewOf(r *gobridge.Record) RecordView {
	return RecordView{
		Partition: string(r.Partition), ID: r.Envelope.ID, Key: r.Envelope.OrderingKey, Subject: r.Envelope.Subject,
		State: r.State.String(), Seq: r.Seq, StoredAt: r.StoredAt, NotBefore: r.Envelope.NotBefore,
		ExpiresAt: r.Envelope.ExpiresAt, RetryAt: r.RetryAt, EndedAt: r.EndedAt,
		Claims: r.ReplayCount, Attempts: r.Attempts, Redrives: r.Redrives, Reason: r.Reason, Error: r.Error,
		PayloadBytes: len(r.Envelope.Payload),
	}
}

func viewOf(r *gobridge.Record) *RecordView {
	if r == nil {
		return nil
	}
	v := ViewOf(r)
	return &v
}
