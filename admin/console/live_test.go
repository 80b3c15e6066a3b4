package console

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"gobridge/operate"
)

// event is a server-sent one.
type event struct{ name, id, data string }

// listener is a client of a stream.
type listener struct {
	testing.TB
	answer *http.Response
	lines  *bufio.Scanner
	close  func()
}

// listen opens a stream as EventSource does; last is the ID of the last event.
func (b *browser) listen(path, last string) *listener {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	b.must(err)
	request.Header.Set("Accept", "text/event-stream")
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	answer, err := b.client.Do(request) //nolint:bodyclose // close does it
	b.must(err)
	l := &listener{TB: b.T, answer: answer, lines: bufio.NewScanner(answer.Body), close: func() { cancel(); answer.Body.Close() }}
	l.lines.Buffer(nil, 10<<20)
	b.Cleanup(l.close)
	return l
}

// next reads an event.
func (l *listener) next() (out event, ok bool) {
	l.Helper()
	for l.lines.Scan() {
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch name {
		case "event":
			out.name = value
		case "retry":
		case "id":
			out.id = value
		case "data":
			out.data += value + "\n"
		case "":
			if out.name != "" {
				return out, true
			}
		default:
			l.Fatalf("line %q", l.lines.Text())
		}
	}
	return out, false
}

// until reads events until one is like that.
func (l *listener) until(what string, is func(event) bool) event {
	l.Helper()
	for {
		e, ok := l.next()
		if !ok {
			l.Fatalf("the stream ends before %s", what)
		}
		if is(e) {
			return e
		}
	}
}

func TestStreamTellsWhatChanges(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(operateToken)
	l := b.listen("/", "")
	if kind := l.answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("%s, %s", l.answer.Status, kind)
	}
	first := l.until("the page", func(e event) bool { return e.name == "main" })
	has(t, first.data, "All is well")
	w.must(w.desk.Pause(t.Context(), operate.Target{Route: "orders", Binding: "crm"}, operate.Who{By: "bo", Reason: "moves <b>"}))
	l.until("the pause in the head", func(e event) bool { return e.name == "head" && strings.Contains(e.data, "1 binding is paused") })
	second := l.until("the pause on the page", func(e event) bool { return e.name == "main" && strings.Contains(e.data, "moves &lt;b&gt;") })
	if second.id == "" || second.id == first.id {
		t.Errorf("IDs %q and %q", first.id, second.id)
	}
}

func TestStreamGoesOnWhereItWas(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(readToken)
	l := b.listen("/help", "")
	if e := l.until("a sign of life", func(event) bool { return true }); e.name != "head" {
		t.Errorf("a page that does not change sends %q", e.name)
	}
	// The page of an empty list says the same each time.
	l = b.listen("/holds", "")
	main := l.until("the page", func(e event) bool { return e.name == "main" })
	has(t, main.data, "Nothing is paused.")
	again := b.listen("/holds", main.id)
	for range 2 {
		if e, _ := again.next(); e.name != "head" {
			t.Errorf("a browser that has the page gets %q", e.name)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(readToken)
	var open []*listener
	for range maxStreams {
		open = append(open, b.listen("/", ""))
	}
	more := b.listen("/", "")
	body, _ := io.ReadAll(more.answer.Body)
	if more.answer.StatusCode != http.StatusServiceUnavailable || more.answer.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s %s", more.answer.Status, body)
	}
	for _, l := range open {
		if l.answer.StatusCode != http.StatusOK {
			t.Fatal(l.answer.Status)
		}
	}
	open[0].close()
	eventually(t, "there is room for one", func() bool {
		l := b.listen("/", "")
		defer l.close()
		return l.answer.StatusCode == http.StatusOK
	})
}

func TestStreamNeedsASessionAndEndsWithTheServer(t *testing.T) {
	w := newWorld(t, nil)
	if l := w.browser().listen("/", ""); l.answer.StatusCode != http.StatusForbidden {
		t.Errorf("without a session: %s", l.answer.Status)
	}
	l := w.login(readToken).listen("/", "")
	l.until("a sign of life", func(e event) bool { return e.name == "head" })
	done := make(chan struct{})
	go func() { defer close(done); w.stop() }()
	for ok := true; ok; {
		_, ok = l.next()
	}
	<-done
}
