package gobridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
)

func TestPartitionSplitsIntoItsParts(t *testing.T) {
	p := gobridge.NewPartition("orders", "crm", 3)
	route, binding, shard, ok := p.Split()
	if !ok || route != "orders" || binding != "crm" || shard != 3 {
		t.Fatalf("%q splits into %q %q %d %v", p, route, binding, shard, ok)
	}
	spread := gobridge.NewShard("orders", "crm", 3, 16)
	route, binding, shard, ok = spread.Split()
	if !ok || route != "orders" || binding != "crm" || shard != 3 || spread.Of() != 16 || p.Of() != 1 {
		t.Fatalf("%q splits into %q %q %d of %d %v", spread, route, binding, shard, spread.Of(), ok)
	}
	if only := gobridge.NewShard("orders", "crm", 0, 1); only != gobridge.NewPartition("orders", "crm", 0) {
		t.Errorf("the only partition of a binding is %q", only)
	}
	for _, bad := range []gobridge.Partition{"", "a", "a/b", "a/b/", "a/b/x", "a/b/01", "a/b/1/2", "a/b/+1",
		"a/b/0of1", "a/b/4of4", "a/b/-1of4", "a/b/of4", "a/b/1of", "a/b/1of04", "a/b/1of2of3"} {
		if _, _, _, ok := bad.Split(); ok {
			t.Errorf("%q splits", bad)
		}
	}
}

// The numbers must never change: messages are stored by them.
func TestShardIsStable(t *testing.T) {
	for _, c := range []struct {
		of      int
		key, id string
		want    int
	}{{1, "a", "x", 0}, {4, "a", "x", 2}, {4, "a", "y", 2}, {4, "", "a", 2}, {7, "customer-7781", "", 4}, {64, "", "\x00", 24}} {
		if got := gobridge.Shard(c.of, c.key, c.id); got != c.want {
			t.Errorf("key %q, ID %q is in partition %d of %d, want %d", c.key, c.id, got, c.of, c.want)
		}
	}
	const of, keys = 16, 16_000
	counts := make([]int, of)
	for i := range keys {
		counts[gobridge.Shard(of, fmt.Sprint("key-", i), "")]++
	}
	for shard, n := range counts {
		if n < keys/of*8/10 || n > keys/of*12/10 {
			t.Errorf("partition %d has %d of %d keys", shard, n, keys)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "A-1_b.c", "0", strings.Repeat("x", 64)} {
		if err := gobridge.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-a", ".a", "a/b", "a b", "ü", "a\x00", strings.Repeat("x", 65)} {
		if gobridge.CheckName(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestAgeIsStampThenSeq(t *testing.T) {
	at := time.Unix(100, 0)
	record := func(created time.Time, seq int64) *gobridge.Record {
		return &gobridge.Record{CreatedAt: created, Seq: seq}
	}
	if !record(at, 9).Older(record(at.Add(1), 1)) || !record(at, 1).Older(record(at, 2)) ||
		record(at, 2).Older(record(at, 2)) || record(at.Add(1), 1).Older(record(at, 2)) {
		t.Fatal("older is not smaller in (CreatedAt, Seq)")
	}
}

func TestDueAndExpired(t *testing.T) {
	at := time.Unix(100, 0)
	r := gobridge.Record{}
	if !r.DueAt().IsZero() || r.Expired(at) {
		t.Fatal("a record without times is due later or expired")
	}
	r.Envelope.NotBefore, r.RetryAt, r.Envelope.ExpiresAt = at, at.Add(time.Second), at.Add(time.Minute)
	if !r.DueAt().Equal(at.Add(time.Second)) {
		t.Fatalf("due at %v, want the later of both times", r.DueAt())
	}
	if r.Expired(at.Add(time.Minute-1)) || !r.Expired(at.Add(time.Minute)) {
		t.Fatal("expires at another time than ExpiresAt")
	}
}

func TestClassify(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		err   error
		want  gobridge.Outcome
		after time.Duration
	}{
		"nil":         {nil, gobridge.OutcomeDelivered, 0},
		"plain":       {cause, gobridge.OutcomeTransient, 0},
		"timeout":     {context.DeadlineExceeded, gobridge.OutcomeTransient, 0},
		"permanent":   {fmt.Errorf("wrapped: %w", gobridge.Permanent(cause)), gobridge.OutcomePermanent, 0},
		"unavailable": {gobridge.Unavailable(cause), gobridge.OutcomeUnavailable, 0},
		"retry after": {gobridge.RetryAfter(time.Minute, cause), gobridge.OutcomeUnavailable, time.Minute},
		"not sent":    {fmt.Errorf("behind another: %w", gobridge.ErrNotSent), gobridge.OutcomeNotSent, 0},
		"no reason":   {gobridge.Permanent(nil), gobridge.OutcomePermanent, 0},
	} {
		outcome, after := gobridge.Classify(c.err)
		if outcome != c.want || after != c.after {
			t.Errorf("%s: %v, %v; want %v, %v", name, outcome, after, c.want, c.after)
		}
		if c.err != nil && c.err.Error() == "" {
			t.Errorf("%s: no text", name)
		}
	}
	if !errors.Is(gobridge.Permanent(cause), cause) {
		t.Error("the cause of a permanent failure is out of reach")
	}
}

func TestDedupeIDIsNewAfterRedrive(t *testing.T) {
	d := gobridge.Delivery{Envelope: messaging.Envelope{ID: "m"}}
	first := d.DedupeID()
	d.Redrives = 1
	second := d.DedupeID()
	d.Redrives = 2
	if first != "m" || second == first || d.DedupeID() == second {
		t.Fatalf("dedupe IDs %q, %q, %q", first, second, d.DedupeID())
	}
}

func TestHandlerFuncAnswersForEach(t *testing.T) {
	bad := errors.New("bad")
	f := gobridge.HandlerFunc(func(_ context.Context, d gobridge.Delivery) error {
		if d.Seq == 2 {
			return bad
		}
		return nil
	})
	got := f.Send(t.Context(), []gobridge.Delivery{{Seq: 1}, {Seq: 2}, {Seq: 3}})
	if len(got) != 3 || got[0] != nil || !errors.Is(got[1], bad) || got[2] != nil {
		t.Fatalf("answers %v", got)
	}
}

func TestLimitsNameTheField(t *testing.T) {
	limits := gobridge.Limits{
		MaxPartition: 20, MaxID: 10, MaxBinding: 10, MaxKey: 10, MaxSubject: 10, MaxContentType: 10,
		MaxHeaders: 2, MaxHeaderBytes: 20, MaxPayload: 30, MaxEnvelope: 60,
	}
	good := gobridge.Record{
		Partition: "r/b/0", Binding: "b",
		Envelope: messaging.Envelope{ID: "id", Payload: make([]byte, 30), Headers: messaging.Headers{"a": "\x00"}},
	}
	if err := limits.Check(&good); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 11)
	for field, c := range map[string]struct {
		change func(*gobridge.Record)
		large  bool
	}{
		"Partition":            {func(r *gobridge.Record) { r.Partition = "" }, false},
		"Binding":              {func(r *gobridge.Record) { r.Binding = "" }, false},
		"State":                {func(r *gobridge.Record) { r.State = gobridge.StateClaimed }, false},
		"Envelope.ID":          {func(r *gobridge.Record) { r.Envelope.ID = "" }, false},
		"Envelope.Subject":     {func(r *gobridge.Record) { r.Envelope.Subject = long }, true},
		"Envelope.OrderingKey": {func(r *gobridge.Record) { r.Envelope.OrderingKey = long }, true},
		"Envelope.ContentType": {func(r *gobridge.Record) { r.Envelope.ContentType = long }, true},
		"Envelope.Payload":     {func(r *gobridge.Record) { r.Envelope.Payload = make([]byte, 31) }, true},
		"Envelope.Headers":     {func(r *gobridge.Record) { r.Envelope.Headers = messaging.Headers{"a": "", "b": "", "c": ""} }, true},
		"Envelope.ExpiresAt":   {func(r *gobridge.Record) { r.Envelope.ExpiresAt = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }, false},
		"CreatedAt":            {func(r *gobridge.Record) { r.CreatedAt = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) }, false},
		"Envelope": {func(r *gobridge.Record) {
			r.Envelope.Subject, r.Envelope.OrderingKey, r.Envelope.ContentType = long[:10], long[:10], long[:10]
		}, true},
	} {
		r := good
		c.change(&r)
		err := limits.Check(&r)
		var fe *gobridge.FieldError
		if !errors.As(err, &fe) || fe.Field != field || !errors.Is(err, gobridge.ErrInvalidRecord) ||
			errors.Is(err, gobridge.ErrTooLarge) != c.large {
			t.Errorf("%s: %v", field, err)
		}
	}
	r := good
	r.Envelope.Headers = messaging.Headers{"Gobridge-Ordering-Key": "k"}
	if err := limits.Check(&r); err == nil || !strings.Contains(err.Error(), "Envelope.OrderingKey") {
		t.Errorf("an ordering key among the headers: %v", err)
	}
}

func TestErrorsNameWhatAndWhere(t *testing.T) {
	ref := gobridge.Ref{Partition: "orders/crm/0", EnvelopeID: "m-1", Binding: "crm"}
	stale := &gobridge.Error{Op: "complete", Ref: ref, Err: gobridge.ErrStaleFencingToken, Hint: "another owner has it"}
	err := error(&gobridge.SettleError{Failed: []*gobridge.Error{stale}})
	for _, part := range []string{"complete", "orders/crm/0", "m-1", "stale fencing token", "another owner has it"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if !errors.Is(err, gobridge.ErrStaleFencingToken) {
		t.Error("the sentinel is out of reach")
	}
}

func TestAnErrorIsNeverADelivery(t *testing.T) {
	var none *gobridge.SendError
	for _, err := range []error{
		&gobridge.SendError{Err: errors.New("no outcome")},
		&gobridge.SendError{Outcome: 99},
		none,
	} {
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeTransient {
			t.Errorf("%#v is outcome %d, want transient", err, outcome)
		}
		if err.Error() == "" {
			t.Errorf("%#v has no text", err)
		}
	}
}

func TestFilterByPatternOfErrors(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"401", "401", true},
		{"401", "401 Unauthorized", false},
		{"401*", "401 Unauthorized", true},
		{"*Unauthorized", "401 Unauthorized", true},
		{"*auth*", "401 Unauthorized", true},
		{"*Auth*", "401 Unauthorized", false},
		{"4*1*U*", "401 Unauthorized", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*a", "aba", true},
		{"a*b*b*a", "aba", false},
		{"*", "", true},
		{"4*1 U", "401 Unauthorized", false},
		{"**", "x", true},
		{"*\n*", "a\nb", true},
	} {
		f := gobridge.Filter{Error: c.pattern}
		if got := f.Matches(&gobridge.BulkItem{Error: c.text}, gobridge.StateDead); got != c.want {
			t.Errorf("%q matches %q: %t", c.pattern, c.text, got)
		}
	}
}
