package gobridge

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gobridge/messaging"
)

// Partition names the unit of ownership and of order: one owner at a time
// drains it, and it serves one binding. Stores treat it as an opaque string.
type Partition string

// NewPartition returns the partition "route/binding/shard". Route and binding
// names have no slash (see [CheckName]).
func NewPartition(route, binding string, shard int) Partition {
	return Partition(route + "/" + binding + "/" + strconv.Itoa(shard))
}

// NewShard returns one of the partitions over which a binding is spread:
// "route/binding/2of4" is the third of four, and the only one of one is
// "route/binding/0". The number is part of the name, so that the partitions of
// one number are never taken for those of another.
func NewShard(route, binding string, shard, of int) Partition {
	if of <= 1 {
		return NewPartition(route, binding, shard)
	}
	return Partition(route + "/" + binding + "/" + strconv.Itoa(shard) + "of" + strconv.Itoa(of))
}

// Shard returns which of a binding's partitions a message belongs to, from 0 to
// of-1: the first 8 bytes of the SHA-256 of its ordering key, or of its ID if it
// has none, as a big-endian number, modulo of. It will never be another one, for
// messages are stored by it.
func Shard(of int, orderingKey, envelopeID string) int {
	if of <= 1 {
		return 0
	}
	if orderingKey == "" {
		orderingKey = envelopeID
	}
	sum := sha256.Sum256([]byte(orderingKey))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(of))
}

// Split returns the parts of a partition made by [NewPartition] or [NewShard],
// and false for any other.
func (p Partition) Split() (route, binding string, shard int, ok bool) {
	route, binding, shard, _, ok = p.parts()
	return route, binding, shard, ok
}

// Of returns over how many partitions the binding was spread whose partition
// this is: 1 if it is the only one, 0 if it is no partition of a binding.
func (p Partition) Of() int {
	_, _, _, of, _ := p.parts()
	return of
}

func (p Partition) parts() (route, binding string, shard, of int, ok bool) {
	route, rest, ok1 := strings.Cut(string(p), "/")
	binding, number, ok2 := strings.Cut(rest, "/")
	of = 1
	number, total, spread := strings.Cut(number, "of")
	var err1, err2 error
	shard, err1 = strconv.Atoi(number)
	if spread {
		of, err2 = strconv.Atoi(total)
	}
	if !ok1 || !ok2 || err1 != nil || err2 != nil || spread && (of < 2 || shard < 0 || shard >= of) || NewShard(route, binding, shard, of) != p {
		return "", "", 0, 0, false
	}
	return route, binding, shard, of, true
}

// CheckName reports what is wrong with name as the name of a route or a
// binding: it has 1 to 64 of the characters a-z, A-Z, 0-9, '-', '_' and '.',
// and starts with a letter or a digit.
func CheckName(name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("name %q has %d characters; a name has 1 to 64", name, len(name))
	}
	for i, c := range []byte(name) {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("name %q: character %q at position %d; "+
				"a name has letters, digits, '-', '_' and '.', and starts with a letter or a digit", name, c, i+1)
		}
	}
	return nil
}

// State is where a record stands.
type State uint8

// The states. Pending and claimed records have not ended; dead ones may come
// back by redrive; the other three are final.
const (
	StatePending State = iota
	StateClaimed
	StateDelivered
	StateExpired
	StateDiscarded
	StateDead
)

var stateNames = [...]string{"pending", "claimed", "delivered", "expired", "discarded", "dead"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// Ended reports whether the record will not be delivered as things stand: it
// no longer holds up its ordering key.
func (s State) Ended() bool { return s != StatePending && s != StateClaimed }

// Ref is the identity of a record, compared byte for byte. No two identities
// meet, whatever bytes the IDs have.
type Ref struct {
	Partition  Partition
	EnvelopeID string
	Binding    string
}

// String returns the identity for people to read; it is not unambiguous.
func (r Ref) String() string { return fmt.Sprintf("%s %q", r.Partition, r.EnvelopeID) }

// Token is the fencing token: who owns a partition, and under which version.
// Versions of a partition only grow; a [LeaseStore] gives them out.
type Token struct {
	Owner   string
	Version int64
}

// Valid reports whether the token has an owner and a version above zero.
func (t Token) Valid() bool { return t.Owner != "" && t.Version > 0 }

// String returns the token as owner@version.
func (t Token) String() string { return t.Owner + "@" + strconv.FormatInt(t.Version, 10) }

// Record is one envelope for one binding in one partition, with its state.
//
// Times have nanoseconds; the zero time means none. Stores keep them exactly
// and return them in UTC, without a monotonic reading.
type Record struct {
	// Partition and Binding, with Envelope.ID, are the identity.
	Partition Partition
	Binding   string

	// Envelope is the message as this binding gets it.
	Envelope messaging.Envelope

	// ContentHash is the digest of the envelope as the source handed it over,
	// before the route changed anything (see [messaging.ContentHash]). Persist
	// takes that of Envelope when it is zero.
	ContentHash messaging.Hash

	// CreatedAt and Seq are the record's age. Seq is the store's; CreatedAt is
	// stamped by the store when it is zero. Age orders, and nothing else:
	// durations and due times never use it.
	CreatedAt time.Time
	Seq       int64

	// StoredAt is the clock of the process that persisted the record, when it
	// did. Set by the store.
	StoredAt time.Time

	State State

	// RetryAt, unless zero, is the time before which a released record is not
	// claimed again. Envelope.NotBefore holds as well.
	RetryAt time.Time

	// ReplayCount counts claims. Nothing acts on it.
	ReplayCount int
	// Attempts counts sends that failed for the record's own reasons.
	Attempts int
	// Unsettled counts claims that took over a claimed record; a settle or a
	// release resets it. Above one, the process may be dying of this record.
	Unsettled int
	// Redrives counts returns from the dead letters.
	Redrives int

	// ClaimedBy and ClaimedAt tell of the claim, or of the last one once the
	// record has ended.
	ClaimedBy Token
	ClaimedAt time.Time

	// EndedAt, Reason and Error tell how the record ended, or why it was
	// released last: Reason is one word ([ReasonExhausted] and
	// its like), Error the full text.
	EndedAt time.Time
	Reason  string
	Error   string
}

// Reasons that gobridge itself gives for an end; others may give their own.
const (
	ReasonExhausted = "exhausted" // as many attempts failed as the policy allows
	ReasonPermanent = "permanent" // the destination will never take it
	ReasonExpired   = "expired"   // ExpiresAt passed
	ReasonFull      = "full"      // the binding's outbox was full
	ReasonRejected  = "rejected"  // the route could not accept it
	ReasonCrashed   = "crashed"   // the process died with it, again and again
	ReasonAged      = "aged"      // kept as a dead letter for as long as configured
	ReasonParked    = "parked"    // moved or discarded after its route went away
)

// Ref returns the record's identity.
func (r *Record) Ref() Ref {
	return Ref{Partition: r.Partition, EnvelopeID: r.Envelope.ID, Binding: r.Binding}
}

// Older reports whether r is older than s: smaller in (CreatedAt, Seq).
func (r *Record) Older(s *Record) bool {
	if c := r.CreatedAt.Compare(s.CreatedAt); c != 0 {
		return c < 0
	}
	return r.Seq < s.Seq
}

// DueAt returns the time before which the record is not claimed, zero for none.
func (r *Record) DueAt() time.Time {
	if r.RetryAt.After(r.Envelope.NotBefore) {
		return r.RetryAt
	}
	return r.Envelope.NotBefore
}

// Expired reports whether the envelope's ExpiresAt has come.
func (r *Record) Expired(now time.Time) bool {
	at := r.Envelope.ExpiresAt
	return !at.IsZero() && !now.Before(at)
}
