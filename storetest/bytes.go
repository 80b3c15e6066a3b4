package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"gobridge"
	"gobridge/messaging"
)

func bytesCases() []testCase {
	return []testCase{
		{name: "BytesComeBackExactly", run: bytesComeBackExactly,
			why: "The bridge carries other people's bytes; a changed one breaks a signature or a protocol."},
		{name: "EveryFieldComesBack", run: everyFieldComesBack,
			why: "What a message says, its own times to the nanosecond included, reaches the destination."},
		{name: "PayloadsOfEverySize", run: payloadsOfEverySize,
			why: "Payloads of no bytes and of a mebibyte are messages like any other."},
		{name: "TooLargeIsRefusedWithTheLimit", run: tooLargeIsRefusedWithTheLimit,
			why: "The producer must learn which field is too large, by how much, and what the limit is; what is just within it is stored."},
	}
}

// oddBytes are values that text-minded stores change.
func oddBytes() []string {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return []string{
		"", "\x00", "a\x00b", "\xff\xfe", "\xc3\x28", string(every), "\r\n", " ", "\u00e9", "e\u0301",
		"日本", "'; DROP TABLE outbox; --", "\\", "null", "{}", "\ufeff", strings.Repeat("x", 200),
	}
}

func bytesComeBackExactly(f *fixture) {
	want := map[string]gobridge.Record{}
	for i, odd := range oddBytes() {
		r := record(fmt.Sprintf("odd-%d", i), payload(odd), headers("empty", "", "odd", odd, "odd-"+odd, "name"))
		r.Envelope.Subject, r.Envelope.ContentType = odd, odd
		f.persist(r)
		want[r.Envelope.ID] = r
	}
	check := func(call string, got *gobridge.Record) {
		f.Helper()
		w := want[got.Envelope.ID].Envelope
		if !bytes.Equal(got.Envelope.Payload, w.Payload) {
			f.Fatalf("%s returned payload %q, want %q", call, got.Envelope.Payload, w.Payload)
		}
		if !maps.Equal(got.Envelope.Headers, w.Headers) {
			f.Fatalf("%s returned headers %q, want %q", call, got.Envelope.Headers, w.Headers)
		}
		if got.Envelope.Subject != w.Subject || got.Envelope.ContentType != w.ContentType {
			f.Fatalf("%s returned subject %q and content type %q, want %q", call, got.Envelope.Subject, got.Envelope.ContentType, w.Subject)
		}
	}
	claimed := f.claim(1, 100)
	if len(claimed) != len(want) {
		f.Fatalf("claimed %d of %d records", len(claimed), len(want))
	}
	for i := range claimed {
		check("Claim", &claimed[i])
		got := f.get(claimed[i].Envelope.ID)
		check("Get", &got)
	}
	f.bury(1, ids(claimed)...)
	page, err := f.store.QueryDead(f.Context(), gobridge.DeadQuery{})
	if err != nil || len(page.Records) != len(want) {
		f.Fatalf("QueryDead returned %d of %d records and error %v", len(page.Records), len(want), err)
	}
	for i := range page.Records {
		check("QueryDead", &page.Records[i])
	}
}

func everyFieldComesBack(f *fixture) {
	zone := time.FixedZone("elsewhere", 2*60*60)
	want := messaging.Envelope{
		ID: "a", Subject: "s", OrderingKey: "k", ContentType: "text/plain",
		Headers: messaging.Headers{"n": "v"}, Payload: []byte("p"),
		CreatedAt: time.Date(1999, 12, 31, 23, 59, 59, 999999999, zone),
		NotBefore: start.Add(-1).In(zone),
		ExpiresAt: time.Date(2261, 12, 31, 0, 0, 0, 1, time.UTC),
	}
	f.persist(gobridge.Record{Partition: part, Binding: binding, Envelope: want})
	want.CreatedAt, want.NotBefore = want.CreatedAt.UTC(), want.NotBefore.UTC()
	got := f.claim(1, 1)
	if len(got) != 1 || !reflect.DeepEqual(got[0].Envelope, want) {
		f.Fatalf("Claim returned\n%+v, want the envelope\n%+v", got, want)
	}
	for name, at := range map[string]time.Time{
		"CreatedAt": got[0].CreatedAt, "StoredAt": got[0].StoredAt, "ClaimedAt": got[0].ClaimedAt,
	} {
		if at != start {
			f.Fatalf("%s is %#v, want %#v: in UTC, without a monotonic reading", name, at, start)
		}
	}
	// Zero times stay zero.
	f.persist(record("zero"))
	zero := f.claim(1, 1, "a")[0]
	for name, at := range map[string]time.Time{
		"Envelope.CreatedAt": zero.Envelope.CreatedAt, "Envelope.NotBefore": zero.Envelope.NotBefore,
		"Envelope.ExpiresAt": zero.Envelope.ExpiresAt, "RetryAt": zero.RetryAt, "EndedAt": zero.EndedAt,
	} {
		if !at.IsZero() {
			f.Fatalf("%s is %v, want the zero time", name, at)
		}
	}
}

func payloadsOfEverySize(f *fixture) {
	sizes := []int{0, 1, 255, 4096, 65536, 1 << 20}
	limit := f.store.Limits().MaxPayload
	for _, size := range sizes {
		if limit > 0 && size > limit {
			size = limit
		}
		want := bytes.Repeat([]byte{0xa5, 0}, size/2+1)[:size]
		id := fmt.Sprintf("size-%d", size)
		f.persist(record(id, payload(string(want))))
		got := f.claim(1, 1)
		if len(got) != 1 || !bytes.Equal(got[0].Envelope.Payload, want) {
			f.Fatalf("a payload of %d bytes did not come back as it was", size)
		}
		f.complete(1, id)
		if limit > 0 && size == limit {
			break
		}
	}
}

// atLimit makes a record whose field has exactly n bytes.
type atLimit struct {
	field string
	limit int
	make  func(id string, n int) gobridge.Record
}

func atLimits(l gobridge.Limits) []atLimit {
	text := func(n int) string { return strings.Repeat("x", n) }
	return []atLimit{
		{"Partition", l.MaxPartition, func(id string, n int) gobridge.Record {
			return record(id, func(r *gobridge.Record) { r.Partition = gobridge.Partition(text(n)) })
		}},
		{"Binding", l.MaxBinding, func(id string, n int) gobridge.Record {
			return record(id, func(r *gobridge.Record) { r.Binding = text(n) })
		}},
		{"Envelope.ID", l.MaxID, func(_ string, n int) gobridge.Record { return record(text(n)) }},
		{"Envelope.OrderingKey", l.MaxKey, func(id string, n int) gobridge.Record { return record(id, key(text(n))) }},
		{"Envelope.Subject", l.MaxSubject, func(id string, n int) gobridge.Record {
			return record(id, func(r *gobridge.Record) { r.Envelope.Subject = text(n) })
		}},
		{"Envelope.ContentType", l.MaxContentType, func(id string, n int) gobridge.Record {
			return record(id, func(r *gobridge.Record) { r.Envelope.ContentType = text(n) })
		}},
		{"Envelope.Headers", l.MaxHeaders, func(id string, n int) gobridge.Record {
			pairs := make([]string, 0, 2*n)
			for i := range n {
				pairs = append(pairs, fmt.Sprintf("%x", i), "")
			}
			return record(id, headers(pairs...))
		}},
		{"Envelope.Headers", l.MaxHeaderBytes, func(id string, n int) gobridge.Record { return record(id, headers("h", text(n-1))) }},
		{"Envelope.Payload", l.MaxPayload, func(id string, n int) gobridge.Record { return record(id, payload(text(n))) }},
		{"Envelope", envelopeBound(l), func(id string, n int) gobridge.Record {
			r := record(id, payload(""))
			return record(id, payload(text(n-gobridge.EnvelopeSize(&r.Envelope))))
		}},
	}
}

// envelopeBound is MaxEnvelope where a payload can reach it, else zero.
func envelopeBound(l gobridge.Limits) int {
	if l.MaxPayload > 0 && l.MaxEnvelope > l.MaxPayload {
		return 0
	}
	return l.MaxEnvelope
}

func tooLargeIsRefusedWithTheLimit(f *fixture) {
	limits := f.store.Limits()
	if again, _ := f.another(0); again.Limits() != limits {
		f.Fatalf("Limits are %+v through one handle and %+v through another", limits, again.Limits())
	}
	for i, c := range atLimits(limits) {
		if c.limit == 0 {
			continue
		}
		fits := c.make(fmt.Sprintf("fits-%d", i), c.limit)
		if limits.Check(&fits) == nil { // another limit may be smaller
			f.persist(fits)
		}
		err := f.store.Persist(f.Context(), []gobridge.Record{record("good"), c.make("over", c.limit+1)})
		f.wantTooLarge(err, c.field, c.limit)
		f.wantGone("good")
	}
	if n := limits.MaxBindings; n > 0 && n <= 10_000 {
		call := make([]gobridge.Record, n+1)
		for i := range call {
			call[i] = record("many", in(gobridge.NewPartition(route, fmt.Sprintf("b%d", i), 0)))
		}
		f.wantErr("Persist of an envelope for too many bindings", f.store.Persist(f.Context(), call), gobridge.ErrTooLarge)
		if got := f.stored(call); got != 0 {
			f.Fatalf("%d records of an envelope with too many bindings are stored", got)
		}
		f.persist(call[:n]...)
	}
	f.wantCallBytesBounded(limits)
}

// wantCallBytesBounded requires the bound on the bytes of one envelope's
// records together, if it is small enough to try.
func (f *fixture) wantCallBytesBounded(limits gobridge.Limits) {
	f.Helper()
	if limits.MaxCallBytes == 0 || limits.MaxCallBytes > 64<<20 {
		return
	}
	const bindings = 4
	large := make([]byte, limits.MaxCallBytes/bindings+1)
	call := make([]gobridge.Record, bindings)
	for i := range call {
		call[i] = record("large", payload(string(large)), in(gobridge.NewPartition(route, fmt.Sprintf("b%d", i), 0)))
		if limits.Check(&call[i]) != nil {
			return // the bound on one envelope comes first
		}
	}
	f.wantErr("Persist of an envelope whose records are too large together", f.store.Persist(f.Context(), call), gobridge.ErrTooLarge)
	if got := f.stored(call); got != 0 {
		f.Fatalf("%d records of an envelope that is too large for a call are stored", got)
	}
}

func (f *fixture) wantTooLarge(err error, field string, limit int) {
	f.Helper()
	f.wantErr("Persist with one too many in "+field, err, gobridge.ErrTooLarge)
	var e *gobridge.FieldError
	if !errors.As(err, &e) || e.Field != field || e.Limit != int64(limit) || e.Size != int64(limit)+1 {
		f.Fatalf("Persist returned error %v, want a *gobridge.FieldError for %s with %d of %d bytes", err, field, limit+1, limit)
	}
}
