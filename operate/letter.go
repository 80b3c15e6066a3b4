package operate

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"gobridge"
	"gobridge/messaging"
)

// Text is a string that JSON may not be able to carry: valid UTF-8 is written
// as it is, anything else as {"base64": "..."}.
type Text string

type encoded struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	b := base64.StdEncoding.EncodeToString([]byte(t))
	return json.Marshal(encoded{&b})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] != '{' {
		var s string
		err := json.Unmarshal(data, &s)
		*t = Text(s)
		return err
	}
	var e encoded
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if e.Base64 == nil {
		return errors.New(`neither a string nor {"base64": "..."}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*e.Base64)
	*t = Text(raw)
	return err
}

// letterVersion is the version of the format.
const letterVersion = 1

// letter is a dead letter as a line of JSON. Every byte of the message comes
// back; Seq, Attempts, StoredAt and EndedAt are there to be read only.
type letter struct {
	Version     int       `json:"gobridge_dead_letter"`
	Route       Text      `json:"route"`
	Binding     Text      `json:"binding"`
	Partition   Text      `json:"partition"`
	ID          Text      `json:"id"`
	Key         Text      `json:"key,omitempty"`
	Subject     Text      `json:"subject,omitempty"`
	ContentType Text      `json:"content_type,omitempty"`
	Headers     [][2]Text `json:"headers,omitempty"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	NotBefore   time.Time `json:"not_before,omitzero"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
	Payload     Text      `json:"payload"`
	ContentHash string    `json:"content_hash"`
	Reason      Text      `json:"reason,omitempty"`
	Error       Text      `json:"error,omitempty"`
	Redrives    int       `json:"redrives,omitempty"`
	Seq         int64     `json:"seq"`
	Attempts    int       `json:"attempts,omitempty"`
	StoredAt    time.Time `json:"stored_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// EncodeLetter writes a dead letter as a line of JSON, without the line's end.
func EncodeLetter(r *gobridge.Record) ([]byte, error) {
	route, _, _, _ := r.Partition.Split()
	e := &r.Envelope
	l := letter{
		Version: letterVersion, Route: Text(route), Binding: Text(r.Binding), Partition: Text(r.Partition),
		ID: Text(e.ID), Key: Text(e.OrderingKey), Subject: Text(e.Subject), ContentType: Text(e.ContentType),
		CreatedAt: e.CreatedAt, NotBefore: e.NotBefore, ExpiresAt: e.ExpiresAt, Payload: Text(e.Payload),
		ContentHash: hex.EncodeToString(r.ContentHash[:]), Reason: Text(r.Reason), Error: Text(r.Error),
		Redrives: r.Redrives, Seq: r.Seq, Attempts: r.Attempts, StoredAt: r.StoredAt, EndedAt: r.EndedAt,
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		l.Headers = append(l.Headers, [2]Text{Text(name), Text(e.Headers[name])})
	}
	return json.Marshal(&l)
}

// DecodeLetter reads a line that EncodeLetter wrote. The record is one to
// persist: it is dead, and has no age yet.
func DecodeLetter(line []byte) (gobridge.Record, error) {
	var l letter
	if err := json.Unmarshal(line, &l); err != nil {
		return gobridge.Record{}, fmt.Errorf("no dead letter: %w", err)
	}
	if l.Version != letterVersion {
		return gobridge.Record{}, fmt.Errorf("no dead letter of version %d: gobridge_dead_letter is %d", letterVersion, l.Version)
	}
	r := gobridge.Record{
		Partition: gobridge.Partition(l.Partition), Binding: string(l.Binding), State: gobridge.StateDead,
		Reason: string(l.Reason), Error: string(l.Error), Redrives: l.Redrives,
		Envelope: messaging.Envelope{
			ID: string(l.ID), OrderingKey: string(l.Key), Subject: string(l.Subject), ContentType: string(l.ContentType),
			CreatedAt: l.CreatedAt, NotBefore: l.NotBefore, ExpiresAt: l.ExpiresAt, Payload: []byte(l.Payload),
		},
	}
	hash, err := hex.DecodeString(l.ContentHash)
	if err != nil || len(hash) != len(r.ContentHash) {
		return r, fmt.Errorf("content_hash has %d characters; it has %d hexadecimal digits", len(l.ContentHash), 2*len(r.ContentHash))
	}
	copy(r.ContentHash[:], hash)
	for _, h := range l.Headers {
		if r.Envelope.Headers == nil {
			r.Envelope.Headers = messaging.Headers{}
		}
		r.Envelope.Headers[string(h[0])] = string(h[1])
	}
	if r.Envelope.ID == "" || r.Partition == "" || r.Binding == "" || l.Redrives < 0 {
		return r, errors.New("no dead letter: id, partition or binding is missing")
	}
	return r, nil
}
