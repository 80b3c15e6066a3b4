package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"gobridge/operate"
)

// pages is a console of a few pages, for the tests.
func pages(s *Surface) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Login(w, r, r.PostFormValue("token"), r.PostFormValue("by")); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	})
	mux.HandleFunc("POST /logout", s.Logout)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c := CallerOf(r.Context())
		fmt.Fprintf(w, "%s %s %v %v|%s", c.Role, c.Named(c.Session.By), c.Session.Expired, c.Session.Stale, c.Session.CSRF)
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		_ = s.Watch(r.Context(), func(status operate.Status, err error) error {
			s.KeepOpen(w)
			_, writeErr := fmt.Fprintf(w, "%s %v\n", status.Level, err)
			return errors.Join(writeErr, http.NewResponseController(w).Flush())
		})
	})
	return mux
}

// browser is a client with cookies.
type browser struct {
	*world
	client *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	w.must(err)
	return &browser{w, &http.Client{Jar: jar, Transport: w.http.Transport}}
}

// do sends a form, or gets a page if there is none.
func (b *browser) do(path string, form url.Values) (int, string) {
	b.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	b.must(err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.client.Do(request)
	b.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	b.must(err)
	return response.StatusCode, string(body)
}

func TestSessions(t *testing.T) {
	var c clock
	var demoted atomic.Bool
	w := newWorld(t, func(o *Options) {
		o.Console, o.Now = pages, c.now
		o.Operate = func() ([]string, error) {
			if demoted.Load() {
				return []string{"another-token-there"}, nil
			}
			return []string{operateToken}, nil
		}
	})
	b := w.browser()
	page := func() (who, csrf string) {
		_, body := b.do("/", nil)
		who, csrf, _ = strings.Cut(body, "|")
		return who, csrf
	}
	login := func(token, by string) int {
		status, _ := b.do("/login", url.Values{"token": {token}, "by": {by}, "csrf": {func() string { _, csrf := page(); return csrf }()}})
		return status
	}
	if who, csrf := page(); who != "none none token false false" || csrf != "" {
		t.Errorf("without a session: %q %q", who, csrf)
	}
	if status := login("some-other-token", "ann"); status != 403 {
		t.Errorf("a wrong token: %d", status)
	}
	if status := login(operateToken, "ann\x1b[2J"); status != 403 {
		t.Errorf("a name for terminals: %d", status)
	}
	if status := login(operateToken, "ann"); status != 200 {
		t.Fatalf("login: %d", status)
	}
	who, csrf := page()
	if who != "operate ann (operate token) false false" || len(csrf) != 64 {
		t.Errorf("with a session: %q %q", who, csrf)
	}
	for form, want := range map[string]string{"": "none none token false true|", "csrf=wrong": "none none token false true|", "csrf=" + csrf: who + "|" + csrf} {
		values, err := url.ParseQuery(form)
		w.must(err)
		if _, got := b.do("/change", values); got != want {
			t.Errorf("a form with %q comes from %q", form, got)
		}
	}
	if a := w.ask("", call{method: "GET", path: apiPrefix + "/status"}); a.status != 401 {
		t.Errorf("the API by cookie: %d", a.status)
	}
	c.advance(sessionIdle - 1)
	if who, _ := page(); who != "operate ann (operate token) false false" {
		t.Errorf("nearly idle: %q", who)
	}
	c.advance(sessionIdle + 1)
	if who, _ := page(); who != "none none token true false" {
		t.Errorf("idle: %q", who)
	}
	if status := login(operateToken, ""); status != 200 {
		t.Errorf("again: %d", status)
	}
	for range 11 {
		c.advance(sessionIdle)
		page()
	}
	if who, _ := page(); who != "operate operate token false false" {
		t.Errorf("after 11 hours: %q", who)
	}
	c.advance(sessionIdle)
	page()
	c.advance(1)
	if who, _ := page(); who != "none none token true false" {
		t.Errorf("after 12 hours: %q", who)
	}
	if status := login(operateToken, "ann"); status != 200 {
		t.Errorf("once more: %d", status)
	}
	_, csrf = page()
	if status, _ := b.do("/logout", url.Values{"csrf": {csrf}}); status != 200 {
		t.Errorf("logout: %d", status)
	}
	if who, _ := page(); who != "none none token false false" {
		t.Errorf("after the logout: %q", who)
	}
	login(operateToken, "ann")
	if login(operateToken, "bob"); len(w.server.sessions.all) != 1 {
		t.Errorf("%d sessions after another login of the same browser", len(w.server.sessions.all))
	}
	demoted.Store(true)
	c.advance(tokenAge)
	if who, _ := page(); who != "none none token true false" {
		t.Errorf("when the token is gone: %q", who)
	}
	var s sessions
	first := s.begin(operateToken, "", c.now())
	for range maxSessions {
		c.advance(1)
		s.begin(operateToken, "", c.now())
	}
	if _, ok := s.find(first, c.now()); ok || len(s.all) != maxSessions {
		t.Errorf("%d sessions, the oldest among them: %v", len(s.all), ok)
	}
}

func TestCookie(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Console = pages })
	response, err := w.http.PostForm(w.url+"/login", url.Values{"token": {readToken}})
	w.must(err)
	response.Body.Close()
	if c := response.Header.Get("Set-Cookie"); !strings.Contains(c, "; HttpOnly; SameSite=Strict") || !strings.Contains(c, "Path=/;") || strings.Contains(c, readToken) {
		t.Errorf("cookie %q", c)
	}
	if csp := response.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("policy %q", csp)
	}
}

// TestWatchersShareALookAndEndWithTheServer has twenty streams, which see a change.
func TestWatchersShareALookAndEndWithTheServer(t *testing.T) {
	desk := &counted{begun: make(chan struct{}), may: make(chan struct{})}
	close(desk.may)
	w := newWorld(t, func(o *Options) {
		o.Console = pages
		desk.Desk, o.Desk = o.Desk, desk
	})
	const streams = 20
	lines := make(chan string, 100*streams)
	ended := make(chan struct{}, streams)
	for range streams {
		go func() {
			defer func() { ended <- struct{}{} }()
			response, err := w.http.Get(w.url + "/events")
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
				lines <- scanner.Text()
			}
		}()
	}
	for range 3 * streams {
		if line := <-lines; line != "degraded <nil>" { // there is no owner
			t.Errorf("a stream says %q", line)
		}
	}
	if n := desk.looks.Load(); n > 20 {
		t.Errorf("%d looks for three rounds of %d streams", n, streams)
	}
	w.stop()
	for range streams {
		<-ended
	}
}
