package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"gobridge"
)

// The sizes of a page.
const (
	defaultPage = 100
	largestPage = 1000
	// bulkEffort is how many records are looked at for one step of a bulk change. A
	// page that somebody looks at gets no more than the largest page has.
	bulkEffort = 20_000
)

const (
	hitColumns = `SELECT id, status, claim_version, created_at, seq, size, ordering_key, envelope_id, binding,
		retry_at, expires_at, ended_at, reason, error, payload IS NULL FROM gobridge_record `

	selectDeadByAge = hitColumns + `WHERE partition = ?1 AND status = 5 AND (created_at, seq) > (?2, ?3)
		ORDER BY created_at, seq LIMIT ?4`
	selectByIdentity = hitColumns + `WHERE partition = ?1 AND (envelope_id, binding) > (?2, ?3)
		ORDER BY envelope_id, binding LIMIT ?4`
	selectOfEnvelope = hitColumns + `WHERE partition = ?1 AND envelope_id = ?2 AND binding > ?3
		ORDER BY binding LIMIT ?4`

	selectOfKey = hitColumns + `WHERE partition = ?1 AND ordering_key = ?2 AND ordering_key <> x'' AND status IN (0, 1)
		AND (created_at, seq) > (?3, ?4) ORDER BY created_at, seq LIMIT ?5`

	selectParts = `SELECT id, name, fence_version FROM gobridge_partition WHERE name >= ?1 AND (?2 = x'' OR name = ?2)
		AND (?3 = x'' OR route = ?3) AND (?4 = x'' OR binding = ?4 OR binding = x'') ORDER BY name`
)

// search finds the records that match a filter, page by page: partition by
// partition, and there dead letters and the pending ones of a key in ascending age,
// or, where other pending ones are searched for too, in the order of their identities.
type search struct {
	filter *gobridge.Filter
	dead   bool
	// pending takes in those claimed under an older version than the fence's.
	pending bool
	// now, unless zero, leaves out what has expired.
	now int64
	// effort is how many records are looked at for one page: a filter that few match
	// gives short pages rather than a long wait.
	effort int
}

// hit is a record that was found, and what a bulk change needs of it.
type hit struct {
	gobridge.BulkItem
	id        int64
	partition int64
	state     gobridge.State
	version   int64
	createdAt int64
	size      int64
	retryAt   int64
	expiresAt int64
	endedAt   int64
	apart     bool
}

// cursor is the place after a record.
type cursor struct {
	Partition  []byte `json:"p"`
	CreatedAt  int64  `json:"c,omitempty"`
	Seq        int64  `json:"s,omitempty"`
	EnvelopeID []byte `json:"e,omitempty"`
	Binding    []byte `json:"b,omitempty"`
}

func (c cursor) String() string {
	text, _ := json.Marshal(c) // never fails
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return c, fmt.Errorf("%w: this store has given none that is %q", gobridge.ErrInvalidCursor, text)
	}
	return c, nil
}

// page returns a page of what is searched for and the cursor of the next.
func (f *search) page(ctx context.Context, q Execer, limit int, from string) (hits []hit, next string, err error) {
	switch {
	case limit <= 0:
		limit = defaultPage
	case limit > largestPage:
		limit = largestPage
	}
	at, err := parseCursor(from)
	if err != nil {
		return nil, "", err
	}
	parts, err := f.parts(ctx, q, at.Partition)
	if err != nil {
		return nil, "", err
	}
	effort := f.effort
	for _, p := range parts {
		if p.name != gobridge.Partition(at.Partition) {
			at = cursor{Partition: blob(p.name)}
		}
		for chunk := min(limit+1, effort+1, largestPage); ; chunk = min(4*chunk, effort+1, largestPage) {
			batch, err := f.read(ctx, q, p, at, chunk)
			if err != nil {
				return nil, "", err
			}
			for _, h := range batch {
				match := f.matches(p, &h)
				if match && len(hits) == limit || effort == 0 {
					return hits, at.String(), nil
				}
				if match {
					hits = append(hits, h)
				}
				at = h.cursor()
				effort--
			}
			if len(batch) < chunk {
				break
			}
		}
	}
	return hits, "", nil
}

func (h *hit) cursor() cursor {
	return cursor{Partition: blob(h.Ref.Partition), CreatedAt: h.createdAt, Seq: h.Seq,
		EnvelopeID: blob(h.Ref.EnvelopeID), Binding: blob(h.Ref.Binding)}
}

// parts returns the partitions that can match, from a name on.
func (f *search) parts(ctx context.Context, q Execer, from []byte) (parts []*part, err error) {
	args := []any{blob(string(from)), blob(f.filter.Partition), blob(f.filter.Route), blob(f.filter.Binding)}
	err = queryAll(ctx, q, selectParts, args, func(rows *sql.Rows) error {
		p := &part{}
		parts = append(parts, p)
		return rows.Scan(&p.id, &p.name, &p.fence.Version)
	})
	return parts, err
}

// read returns up to limit records of a partition after a place.
func (f *search) read(ctx context.Context, q Execer, p *part, at cursor, limit int) (hits []hit, err error) {
	query, args := selectByIdentity, []any{p.id, blob(string(at.EnvelopeID)), blob(string(at.Binding)), limit}
	switch {
	case f.filter.EnvelopeID != "":
		query, args[1] = selectOfEnvelope, blob(f.filter.EnvelopeID)
	case f.pending && !f.dead && f.filter.OrderingKey != "":
		query, args = selectOfKey, []any{p.id, blob(f.filter.OrderingKey), at.CreatedAt, at.Seq, limit}
	case !f.pending:
		query, args = selectDeadByAge, []any{p.id, at.CreatedAt, at.Seq, limit}
	}
	err = queryAll(ctx, q, query, args, func(rows *sql.Rows) error {
		h, err := scanHit(rows, p)
		hits = append(hits, h)
		return err
	})
	return hits, err
}

// scanHit reads hitColumns.
func scanHit(rows *sql.Rows, p *part) (hit, error) {
	h := hit{partition: p.id}
	h.Ref.Partition = p.name
	err := rows.Scan(&h.id, &h.state, &h.version, &h.createdAt, &h.Seq, &h.size, &h.OrderingKey, &h.Ref.EnvelopeID,
		&h.Ref.Binding, &h.retryAt, &h.expiresAt, &h.endedAt, &h.Reason, &h.Error, &h.apart)
	h.EndedAt = moment(h.endedAt)
	return h, err
}

// matches reports whether a record of a partition that matches is searched for.
func (f *search) matches(p *part, h *hit) bool {
	switch h.state {
	case gobridge.StateDead:
		if !f.dead {
			return false
		}
	case gobridge.StatePending:
		if !f.pending {
			return false
		}
	default:
		if !f.pending || h.version >= p.fence.Version {
			return false
		}
	}
	if f.now != 0 && h.expiresAt != 0 && h.expiresAt <= f.now {
		return false
	}
	return f.filter.Matches(&h.BulkItem, h.state)
}
