// Package transporttest is the conformance suite of transports: what every source
// and every sender does, whatever broker is behind it. It uses the standard library
// only; run it against transports of your own as this project does against its own.
//
//	func TestReceiver(t *testing.T) {
//		transporttest.RunSource(t, func(t testing.TB) transporttest.Source { ... })
//	}
//
// Each case opens a source or a destination of its own, so that cases see nothing
// of each other. Cases wait for what must happen, with a generous bound, and never
// for time to pass; [Source.Hold] is the one exception.
package transporttest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gobridge/messaging"
)

// patience bounds a wait; 60 s when zero.
type patience time.Duration

func (p patience) length() time.Duration {
	if p > 0 {
		return time.Duration(p)
	}
	return 60 * time.Second
}

// eventually waits until ok reports true.
func (p patience) eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(p.length())
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s has not happened", p.length(), what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitAll waits until all of a series are among what came.
func (p patience) awaitAll(t testing.TB, want []messaging.Envelope, came func() [][]byte) {
	t.Helper()
	deadline := time.Now().Add(p.length())
	for {
		lost := missing(want, came())
		if len(lost) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s %d of %d messages have not come: %s", p.length(), len(lost), len(want), some(lost))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wantSame fails the test unless a message came through as it was, as far as there was
// a place for it.
func wantSame(t testing.TB, got, want messaging.Envelope, noKey, noHeaders bool) {
	t.Helper()
	if !bytes.Equal(got.Payload, want.Payload) {
		t.Errorf("payload %q, want %q", got.Payload, want.Payload)
	}
	if !noKey && got.OrderingKey != want.OrderingKey {
		t.Errorf("ordering key %q, want %q", got.OrderingKey, want.OrderingKey)
	}
	if noHeaders {
		return
	}
	if got.ContentType != want.ContentType {
		t.Errorf("content type %q, want %q", got.ContentType, want.ContentType)
	}
	for name, value := range want.Headers {
		if got.Headers[name] != value {
			t.Errorf("header %s is %q, want %q", name, got.Headers[name], value)
		}
	}
}

// testCase is one rule: what it is called, why it is one, what it needs, and what
// checks it.
type testCase[T any] struct {
	name, why string
	needs     func(*T) string // why the case does not apply, empty if it does; nil for always
	run       func(t testing.TB, subject *T)
}

func (c testCase[T]) check(t testing.TB, open func(t testing.TB) T) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.why)
		}
	})
	subject := open(t)
	if c.needs != nil {
		if why := c.needs(&subject); why != "" {
			t.Skip(why)
		}
	}
	c.run(t, &subject)
}

// series are n messages spread over keys in turn, whose payloads begin with their
// key and their number within it.
func series(keys, n int) []messaging.Envelope {
	out := make([]messaging.Envelope, n)
	for i := range out {
		key := fmt.Sprintf("key-%d", i%keys)
		out[i] = messaging.Envelope{
			ID: fmt.Sprintf("m-%d-%d", i%keys, i/keys), OrderingKey: key, ContentType: "text/plain",
			Payload: fmt.Appendf(nil, "%s %d ", key, i/keys),
		}
	}
	return out
}

// place returns the key and the number that a payload of [series] begins with.
func place(payload []byte) (key string, number int, ok bool) {
	n, err := fmt.Sscanf(string(payload[:min(len(payload), 64)]), "%s %d", &key, &number)
	return key, number, err == nil && n == 2
}

// inOrder reports the first two payloads of a key of which the later came first,
// repeats aside: an empty string if there are none.
func inOrder(payloads [][]byte) string {
	newest := map[string]int{}
	for _, p := range payloads {
		key, number, ok := place(p)
		if !ok {
			continue
		}
		last, seen := newest[key]
		if seen && number <= last {
			continue // a repeat
		}
		if number > 0 && (!seen || number != last+1) {
			return fmt.Sprintf("%s %d came after %s %s", key, number, key, lastOf(seen, last))
		}
		newest[key] = number
	}
	return ""
}

func lastOf(seen bool, last int) string {
	if !seen {
		return "nothing"
	}
	return fmt.Sprint(last)
}

// missing returns which payloads of a series are not among those that came.
func missing(want []messaging.Envelope, got [][]byte) []string {
	seen := map[string]bool{}
	for _, p := range got {
		key, number, _ := place(p)
		seen[fmt.Sprint(key, " ", number)] = true
	}
	var out []string
	for _, e := range want {
		key, number, _ := place(e.Payload)
		if name := fmt.Sprint(key, " ", number); !seen[name] {
			out = append(out, name)
		}
	}
	return out
}

// some shortens a list for a message.
func some(list []string) string {
	if len(list) > 10 {
		list = append(slices.Clone(list[:10]), "...")
	}
	return strings.Join(list, ", ")
}
