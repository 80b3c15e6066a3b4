package console

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"gobridge/operate"
)

const (
	// maxStreams bounds the streams that are open at a time.
	maxStreams = 128
	// streamLife is how long one goes on; then the browser opens another, and its
	// session is checked anew.
	streamLife = 30 * time.Second
)

// stream sends a page's live parts whenever they have changed, as server-sent events
// (WHATWG HTML, section 9.2): "head" is how things stand and comes with every look,
// which makes it a sign of life; "main" is the page. The ID of "main" is a digest of
// it, so that a browser that comes back gets only what it has not.
func (c *console) stream(w http.ResponseWriter, r *http.Request, p page) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many consoles are open: this one is not live.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy in between must not wait for more
	fmt.Fprint(w, "retry: 1000\n\n")          // a stream that has ended is opened again at once
	s := &stream{console: c, page: p, w: w, r: r, last: r.Header.Get("Last-Event-ID"), end: time.Now().Add(streamLife)}
	_ = c.surface.Watch(r.Context(), s.look) // it ends with the client, or the stream's life
}

// stream is one client's.
type stream struct {
	console *console
	page    page
	w       http.ResponseWriter
	r       *http.Request
	last    string // the digest of what the client has
	end     time.Time
}

// streamOver ends a stream.
type streamOver struct{}

func (streamOver) Error() string { return "the stream has lasted long enough" }

// look sends what is new. Whatever it asks for comes from the look that all share.
func (s *stream) look(status operate.Status, err error) error {
	v := newView(s.r, s.page.title)
	v.see(&status, err)
	var out bytes.Buffer
	if s.page.live && err == nil {
		if v, err = s.console.draw(s.r, s.page); err == nil {
			s.add(&out, v)
		}
	} else if err == nil {
		s.console.history.add(&status)
	}
	if err != nil {
		v = newView(s.r, s.page.title)
		v.see(nil, err)
	}
	if err := s.event(&out, "head", "", v); err != nil {
		return err
	}
	s.console.surface.KeepOpen(s.w)
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return err
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil {
		return err
	}
	if time.Now().After(s.end) {
		return streamOver{}
	}
	return nil
}

// add writes the page if the client has not got it.
func (s *stream) add(out *bytes.Buffer, v *view) {
	var page bytes.Buffer
	if s.console.pages[s.page.template].ExecuteTemplate(&page, "main", v) != nil {
		return
	}
	sum := fnv.New64a()
	_, _ = sum.Write(page.Bytes())
	if id := fmt.Sprintf("%016x", sum.Sum64()); id != s.last {
		s.last = id
		writeEvent(out, "main", id, page.Bytes())
	}
}

func (s *stream) event(out *bytes.Buffer, name, id string, v *view) error {
	var text bytes.Buffer
	if err := s.console.pages[s.page.template].ExecuteTemplate(&text, name, v); err != nil {
		return err
	}
	writeEvent(out, name, id, text.Bytes())
	return nil
}

func writeEvent(out *bytes.Buffer, name, id string, data []byte) {
	fmt.Fprintf(out, "event: %s\n", name)
	if id != "" {
		fmt.Fprintf(out, "id: %s\n", id)
	}
	for line := range bytes.Lines(data) {
		fmt.Fprintf(out, "data: %s\n", bytes.TrimRight(line, "\r\n"))
	}
	out.WriteByte('\n')
}
