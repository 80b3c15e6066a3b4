package dynamodb

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/messaging"
)

// item is a row as DynamoDB has it.
type item = map[string]types.AttributeValue

// row is a record as it is stored.
type row struct {
	gobridge.Record

	pk, sk string
	// size counts payload and headers.
	size int64
	// nonce changes with every change of the row; a change is conditional on it.
	nonce string
	// settled says that ClaimedBy has settled the record, and nobody has changed
	// it since: settling again in the same way is success.
	settled bool
	// after are the sort keys of the earlier records of its key that came in one
	// call with it, or were redriven with it.
	after []string
	// stamped says that the store has given it its stamp in this call.
	stamped bool
}

func (r *row) age() age    { return age{nanos(r.CreatedAt), r.Seq} }
func (r *row) key() string { return r.Envelope.OrderingKey }

// units is what changing the row costs in a transaction.
func (r *row) units() int { return 2 * (r.bytes()/1024 + 1) }

// bytes is about what the item has while it is claimed, names of attributes
// included: the write units of its changes go by that.
func (r *row) bytes() int {
	e := &r.Envelope
	n := 230 + len(r.pk) + len(r.sk) + int(r.size) + len(e.Subject) + len(e.OrderingKey) + len(e.ContentType) +
		len(r.Reason) + len(r.Error)
	for _, sk := range r.after {
		n += len(sk) + 1
	}
	return n
}

// item returns what is stored of r.
func (r *row) item() (item, error) {
	headers, err := r.Envelope.Headers.MarshalBinary()
	if err != nil {
		return nil, err
	}
	e := &r.Envelope
	out := item{
		attrPK: str(r.pk), attrSK: str(r.sk), "state": str(r.State.String()),
		"seq": num(r.Seq), "created_at": num(nanos(r.CreatedAt)), "stored_at": num(nanos(r.StoredAt)),
		"hash": bin(r.ContentHash[:]), "nonce": str(r.nonce),
	}
	switch r.State {
	case gobridge.StatePending:
		out[attrClaimSort] = bin(claimSort(liveRange, r.age()))
	case gobridge.StateDead:
		out[attrClaimSort] = bin(claimSort(deadRange, r.age()))
	}
	setText(out, "ordering_key", e.OrderingKey)
	setText(out, "subject", e.Subject)
	setText(out, "content_type", e.ContentType)
	setText(out, "reason", r.Reason)
	setText(out, "error", r.Error)
	setText(out, "after", strings.Join(r.after, "\n"))
	if len(e.Payload) > 0 {
		out["payload"] = bin(bytes.Clone(e.Payload))
	}
	if len(headers) > 0 {
		out["headers"] = bin(headers)
	}
	setNum(out, "size", r.size)
	setNum(out, "message_at", nanos(e.CreatedAt))
	setNum(out, "not_before", nanos(e.NotBefore))
	setNum(out, "expires_at", nanos(e.ExpiresAt))
	setNum(out, "ended_at", nanos(r.EndedAt))
	setNum(out, "redrives", int64(r.Redrives))
	return out, nil
}

// stripped are the attributes that an ended record does not keep.
const stripped = "#claim_sort, #payload, #headers, #size, #subject, #content_type, #message_at, #not_before, #expires_at, " +
	"#retry_at, #unsettled, #after"

// parseRow reads a record. Attributes that were not asked for are zero.
func parseRow(it item) (*row, error) {
	p := parser{it: it}
	r := &row{pk: p.text(attrPK), sk: p.text(attrSK)}
	ref, err := parseKeys(r.pk, r.sk)
	if err != nil {
		return nil, err
	}
	r.Partition, r.Binding, r.Envelope.ID = ref.Partition, ref.Binding, ref.EnvelopeID
	e := &r.Envelope
	e.OrderingKey, e.Subject, e.ContentType = p.text("ordering_key"), p.text("subject"), p.text("content_type")
	e.Payload = p.bytes("payload")
	if b := p.bytes("headers"); len(b) > 0 {
		p.fail("headers", e.Headers.UnmarshalBinary(b))
	}
	e.CreatedAt, e.NotBefore, e.ExpiresAt = p.time("message_at"), p.time("not_before"), p.time("expires_at")
	r.State = p.state()
	copy(r.ContentHash[:], p.bytes("hash"))
	r.Seq, r.CreatedAt, r.StoredAt = p.num("seq"), p.time("created_at"), p.time("stored_at")
	r.RetryAt, r.EndedAt, r.ClaimedAt = p.time("retry_at"), p.time("ended_at"), p.time("claimed_at")
	r.ReplayCount, r.Attempts = int(p.num("replay_count")), int(p.num("attempts"))
	r.Unsettled, r.Redrives = int(p.num("unsettled")), int(p.num("redrives"))
	r.ClaimedBy = gobridge.Token{Owner: p.text("owner"), Version: p.num("version")}
	r.Reason, r.Error = p.text("reason"), p.text("error")
	r.size, r.nonce, r.settled = p.num("size"), p.text("nonce"), p.num("settled") != 0
	if after := p.text("after"); after != "" {
		r.after = strings.Split(after, "\n")
	}
	if p.err != nil {
		return nil, fmt.Errorf("row %q, %q: %w", r.pk, r.sk, p.err)
	}
	return r, nil
}

// parser reads attributes and keeps the first error.
type parser struct {
	it  item
	err error
}

func (p *parser) fail(name string, err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("attribute %s: %w", name, err)
	}
}

var errType = errors.New("has another type than expected")

func (p *parser) text(name string) string {
	switch v := p.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	default:
		p.fail(name, errType)
	}
	return ""
}

func (p *parser) bytes(name string) []byte {
	switch v := p.it[name].(type) {
	case nil:
	case *types.AttributeValueMemberB:
		return v.Value
	default:
		p.fail(name, errType)
	}
	return nil
}

func (p *parser) num(name string) int64 {
	switch v := p.it[name].(type) {
	case nil:
		return 0
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		p.fail(name, err)
		return n
	}
	p.fail(name, errType)
	return 0
}

func (p *parser) time(name string) time.Time { return timeOf(p.num(name)) }

func (p *parser) state() gobridge.State {
	name := p.text("state")
	for s := gobridge.StatePending; s <= gobridge.StateDead; s++ {
		if s.String() == name {
			return s
		}
	}
	if name != "" {
		p.fail("state", fmt.Errorf("%q is none", name))
	}
	return gobridge.StatePending
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func bin(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func num[N ~int | ~int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

// text is a string that may have any bytes: one that is not UTF-8 is kept as
// binary, for DynamoDB's strings are UTF-8.
func text(s string) types.AttributeValue {
	if utf8.ValidString(s) {
		return str(s)
	}
	return bin([]byte(s))
}

func setText(it item, name, s string) {
	if s != "" {
		it[name] = text(s)
	}
}

func setNum(it item, name string, n int64) {
	if n != 0 {
		it[name] = num(n)
	}
}

// cut bounds a text that people wrote to what an item has room for.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText-3] + "..."
}

// nanos returns t as nanoseconds since 1970, within what 63 bits can hold; zero
// for the zero time, and at least one for any other.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s < 0:
		return 1
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	default:
		return max(t.UnixNano(), 1)
	}
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// clean takes the monotonic reading and the location off a time.
func clean(t time.Time) time.Time { return t.Round(0).UTC() }

// newRow returns what is stored of r, which has not got its age yet, and nothing
// that the caller still holds.
func newRow(r *gobridge.Record, now time.Time) *row {
	out := &row{
		Record: gobridge.Record{
			Partition: r.Partition, Binding: r.Binding, Envelope: r.Envelope, ContentHash: r.ContentHash,
			CreatedAt: clean(r.CreatedAt), StoredAt: now, State: r.State,
		},
		pk: partitionKey(r.Partition), sk: recordKey(r.Envelope.ID, r.Binding),
		size: int64(len(r.Envelope.Payload) + r.Envelope.Headers.Size()),
	}
	if r.State == gobridge.StateDead {
		out.EndedAt, out.Reason, out.Error, out.Redrives = now, cut(r.Reason), cut(r.Error), r.Redrives
	}
	if out.ContentHash == (messaging.Hash{}) {
		out.ContentHash = messaging.ContentHash(&r.Envelope)
	}
	return out
}
