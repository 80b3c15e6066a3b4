package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// recordColumns are what a record is made of, of the table under the name r.
const recordColumns = `r.id, r.status, r.freed, r.created_at, r.seq, r.size, r.ordering_key, r.envelope_id, r.binding,
	r.not_before, r.retry_at, r.expires_at, r.claim_version, r.claimed_at, r.claim_owner,
	r.replay_count, r.attempts, r.unsettled, r.redrives, r.stored_at, r.ended_at, r.reason, r.error, r.content_hash,
	r.sent_at, r.subject, r.content_type, r.headers,
	coalesce(r.payload, (SELECT b.payload FROM gobridge_payload AS b WHERE b.id = r.id))`

// row is a record as it was read.
type row struct {
	id    int64
	freed bool
	size  int64
	gobridge.Record
}

// scanRow reads recordColumns.
func scanRow(rows *sql.Rows, partition gobridge.Partition) (row, error) {
	var (
		out                                             row
		created, notBefore, retry, expires, claimed     int64
		stored, ended, sent                             int64
		key, envelopeID, binding, owner, reason, failed sql.RawBytes
		hash, subject, contentType, headers, payload    sql.RawBytes
	)
	r := &out.Record
	err := rows.Scan(&out.id, &r.State, &out.freed, &created, &r.Seq, &out.size, &key, &envelopeID, &binding,
		&notBefore, &retry, &expires, &r.ClaimedBy.Version, &claimed, &owner,
		&r.ReplayCount, &r.Attempts, &r.Unsettled, &r.Redrives, &stored, &ended, &reason, &failed, &hash,
		&sent, &subject, &contentType, &headers, &payload)
	if err != nil {
		return out, err
	}
	r.Partition = partition
	r.Binding = string(binding)
	r.CreatedAt, r.StoredAt, r.RetryAt = moment(created), moment(stored), moment(retry)
	r.ClaimedAt, r.EndedAt = moment(claimed), moment(ended)
	r.ClaimedBy.Owner = string(owner)
	r.Reason, r.Error = string(reason), string(failed)
	copy(r.ContentHash[:], hash)
	r.Envelope = messaging.Envelope{
		ID:          string(envelopeID),
		Subject:     string(subject),
		OrderingKey: string(key),
		ContentType: string(contentType),
		Payload:     bytes.Clone(payload),
		CreatedAt:   moment(sent),
		NotBefore:   moment(notBefore),
		ExpiresAt:   moment(expires),
	}
	if err := r.Envelope.Headers.UnmarshalBinary(headers); err != nil {
		return out, fmt.Errorf("record %s: %w", r.Ref(), err)
	}
	return out, nil
}

// The nanoseconds of the latest time that a column holds.
const latest = 1<<63 - 2

// nanos returns t as nanoseconds since 1970, within what a column can hold. The
// zero time is zero, and so is what lies before 1970.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s >= latest/1_000_000_000:
		return latest
	default:
		return t.UnixNano()
	}
}

// moment returns the time of a column.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// list makes ids into the JSON array that the bulk statements read.
func list(ids []int64) string {
	out, _ := json.Marshal(ids) // never fails
	return string(out)
}
