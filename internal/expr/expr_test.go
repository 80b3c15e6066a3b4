package expr_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge/internal/expr"
	"gobridge/messaging"
)

func order(payload string) *messaging.Envelope {
	return &messaging.Envelope{
		ID:          "m-1",
		Subject:     "plant/7/sensor/temp",
		OrderingKey: "given",
		ContentType: "application/json",
		Headers:     messaging.Headers{"x-tenant": "ACME"},
		Payload:     []byte(payload),
		CreatedAt:   time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
	}
}

func TestKey(t *testing.T) {
	tests := []struct{ source, payload, want string }{
		{`subject.split("/")[1]`, ``, "7"},
		{`key`, ``, "given"},
		{`id`, ``, "m-1"},
		{`headers["x-tenant"].lowerAscii()`, ``, "acme"},
		{`string(payload_size)`, `{}`, "2"},
		{`payload.customer_id`, `{"customer_id":"c-1"}`, "c-1"},
		{`payload.customer_id`, `{"customer_id":42}`, "42"},
		{`payload.customer_id`, `{"customer_id":-9007199254740993}`, "-9007199254740993"},
		{`payload.customer_id`, `{"customer_id":18446744073709551615}`, "18446744073709551615"},
		{`payload.a.b[1]`, `{"a":{"b":["x","y"]}}`, "y"},
		{`has(payload.x) ? payload.x : ""`, `{}`, ""},
		{`payload`, `"whole"`, "whole"},
		{`payload.tenant + "/" + string(payload.n)`, `{"tenant":"t","n":3}`, "t/3"},
		{`created_at.getFullYear() == 2026 ? "new" : "old"`, ``, "new"},
		// The payload is not read where the expression does not need it.
		{`payload_size > 3 ? subject : payload.x`, `not JSON`, "plant/7/sensor/temp"},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			f, err := expr.Key(tt.source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f(order(tt.payload))
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	tests := []struct {
		source, payload string
		want            bool
	}{
		{`payload.temp > 90.0`, `{"temp":91}`, true},
		{`payload.temp > 90.0`, `{"temp":90.5}`, true},
		{`payload.temp > 90`, `{"temp":89.5}`, false},
		{`payload_size > 0.5`, `{}`, true},
		{`payload.urgent`, `{"urgent":true}`, true},
		{`subject.startsWith("plant/")`, ``, true},
		{`subject.matches("^plant/[0-9]+/")`, ``, true},
		{`payload.items.exists(i, i.sku == "a")`, `{"items":[{"sku":"b"},{"sku":"a"}]}`, true},
		{`"x-tenant" in headers && !("y" in headers)`, ``, true},
		{`payload == null`, `null`, true},
		{`content_type == "application/json"`, ``, true},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			f, err := expr.Filter(tt.source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f(order(tt.payload))
			if err != nil || got != tt.want {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestFailsOnMessage(t *testing.T) {
	tests := []struct{ source, payload, want string }{
		{`payload.customer_id`, `{}`, "expression `payload.customer_id`: no such key: customer_id"},
		{`payload.customer_id`, ``, "the payload is empty, not JSON"},
		{`payload.customer_id`, `{"customer_id"`, "the payload is not JSON: unexpected EOF"},
		{`payload.customer_id`, `{} {}`, "something follows the first value"},
		{`payload.customer_id`, `{"customer_id":1.5}`, "gives a number with a fraction or exponent"},
		{`payload.customer_id`, `{"customer_id":18446744073709551616}`, "too large for an integer"},
		{`payload.customer_id`, `{"customer_id":null}`, "gives null; an ordering key is a string or an integer"},
		{`payload.customer_id`, `{"customer_id":[1]}`, "gives a list"},
		{`headers["none"]`, ``, "no such key: none"},
		{`subject.split("/")[9]`, ``, "index out of bounds: 9"},
		{`payload.x`, `"` + strings.Repeat("a", 4<<20) + `"`, "expressions read up to 4194304"},
		{`payload.map(a, payload.map(b, payload.map(c, "x")))[0][0][0]`, "[" + strings.Repeat("1,", 999) + "1]", "takes too much work on this message"},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			f, err := expr.Key(tt.source)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f(order(tt.payload)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
	f, err := expr.Filter(`payload.urgent`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f(order(`{"urgent":"yes"}`)); err == nil || !strings.Contains(err.Error(), "gives a string; a filter is true or false") {
		t.Errorf("got %v", err)
	}
}

func TestDoesNotCompile(t *testing.T) {
	key := func(s string) error { _, err := expr.Key(s); return err }
	filter := func(s string) error { _, err := expr.Filter(s); return err }
	tests := []struct {
		compile      func(string) error
		source       string
		line, column int
		want         string
	}{
		{key, ``, 1, 1, "the expression is empty"},
		{key, "\xff", 1, 1, "not valid UTF-8"},
		{key, `"` + strings.Repeat("é", 5000) + `"`, 1, 1, "the expression has 5002 characters; the limit is 4096"},
		{key, `payloda.x`, 1, 1, "undeclared reference to 'payloda'"},
		{key, "subject +\n  nothing", 2, 3, "undeclared reference to 'nothing'"},
		{key, `size(subject)`, 1, 1, "the expression gives int; an ordering key is a string; write string(...)"},
		{key, `subject.splt("/")`, 1, 13, "undeclared reference to 'splt'"},
		{filter, `payload.temp >`, 1, 15, "mismatched input"},
		{filter, `subject`, 1, 1, "the expression gives string; a filter is true or false"},
		{filter, `subject > 3`, 1, 9, "no matching overload"},
		{filter, `subject.matches("(")`, 1, 1, "missing closing )"},
		{filter, strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300), 1, 1, "recursion"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			err := tt.compile(tt.source)
			var e *expr.Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("got %v, want *expr.Error", err)
			}
			p := e.Problems[0]
			if p.Line != tt.line || p.Column != tt.column || !strings.Contains(p.Message, tt.want) {
				t.Errorf("got %v, want %d:%d: %s", err, tt.line, tt.column, tt.want)
			}
		})
	}
}

func TestConcurrentUse(t *testing.T) {
	f, err := expr.Key(`payload.items.filter(i, i > 1).map(i, string(i)).join(",")`)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 100 {
				want := fmt.Sprintf("2,%d", n+10)
				got, err := f(order(fmt.Sprintf(`{"items":[1,2,%d]}`, n+10)))
				if err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{`payload.temp > 90.0`, `subject.split("/")[1]`, `has(payload.x) ? payload.x : ""`,
		`[1,2].map(x, x*2)`, `"a".matches("(")`, `"\xff"`, `{}`, `b"\000"`, "`", "\x00"} {
		f.Add(s, `{"temp":1,"x":[null,1e999]}`)
	}
	f.Fuzz(func(_ *testing.T, source, payload string) {
		if key, err := expr.Key(source); err == nil {
			_, _ = key(order(payload))
		}
		if filter, err := expr.Filter(source); err == nil {
			_, _ = filter(order(payload))
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := expr.Filter(`payload.temp > 90.0`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	e := order(`{"temp":91,"id":"c-1","note":"` + strings.Repeat("x", 200) + `"}`)
	for _, source := range []string{`payload.temp > 90.0`, `subject.startsWith("plant/")`} {
		b.Run(source, func(b *testing.B) {
			f, err := expr.Filter(source)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := f(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestExpressionsAreCompiledSideBySide(t *testing.T) {
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			for j := range 20 {
				key, err := expr.Key(fmt.Sprintf("subject + string(payload_size) + '%d-%d'", i, j))
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := key(&messaging.Envelope{Subject: "s"}); err != nil || got != fmt.Sprintf("s0%d-%d", i, j) {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wait.Wait()
}
