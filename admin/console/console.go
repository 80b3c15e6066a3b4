package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

//go:embed templates static
var files embed.FS

// console serves the pages.
type console struct {
	surface *admin.Surface
	// holds lists pauses and halts; nil if the desk can't.
	holds   lister
	pages   map[string]*template.Template
	version string // of the static files
	history history
	held    heldLook
	streams chan struct{} // one for each stream that is open
	actTime time.Duration
}

// lister is a desk that lists every pause and halt. [*operate.Desk] is one.
type lister interface {
	Controls(ctx context.Context) ([]gobridge.Control, error)
}

// New makes a console. It is an [admin.Console].
func New(surface *admin.Surface) http.Handler { return newConsole(surface, actTime) }

func newConsole(surface *admin.Surface, actTime time.Duration) http.Handler {
	c := &console{surface: surface, streams: make(chan struct{}, maxStreams), actTime: actTime}
	c.holds, _ = surface.Desk.(lister)
	c.version = version()
	c.pages = parse(c.version)
	mux := http.NewServeMux()
	for _, p := range pages() {
		mux.Handle("GET "+p.path, c.page(p))
	}
	mux.HandleFunc("GET /act", c.askAct)
	mux.HandleFunc("POST /act", c.doAct)
	mux.HandleFunc("GET /login", c.askLogin)
	mux.HandleFunc("POST /login", c.doLogin)
	mux.HandleFunc("POST /logout", c.doLogout)
	mux.HandleFunc("GET /session", c.session)
	mux.Handle("GET /static/", c.static())
	mux.HandleFunc("/", c.missing)
	return mux
}

// version is a digest of the static files, so that a browser may keep them.
func version() string {
	sum := sha256.New()
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		data, _ := files.ReadFile("static/" + name) // it is embedded
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// parse joins the layout with each page.
func parse(version string) map[string]*template.Template {
	functions := template.FuncMap{
		"thousands": number, "visible": operate.Visible, "short": short, "stamp": stamp,
		"ago": func(now, t time.Time) string { return operate.Span(now.Sub(t)) },
		"nav": nav,
		"recordPage": func(partition, id string) string {
			route, binding, _, _ := gobridge.Partition(partition).Split()
			return recordHref(route+"/"+binding, id)
		},
		"table": func(now time.Time, rows any) any {
			return struct {
				Now  time.Time
				Rows any
			}{now, rows}
		},
		"static": func(name string) string {
			return "/static/" + name + "?v=" + version
		},
	}
	layout := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	out := map[string]*template.Template{}
	names, _ := fs.Glob(files, "templates/*.html") // the pattern is right
	for _, name := range names {
		base := path.Base(name)
		out[base] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
	}
	return out
}

// entry is one of the navigation.
type entry struct{ Name, Href string }

func nav() []entry {
	return []entry{
		{"Overview", "/"}, {"Keys in trouble", "/keys"}, {"Dead letters", "/dead"}, {"On hold", "/holds"},
		{"Partitions", "/partitions"}, {"Audit", "/audit"}, {"Configuration", "/config"},
	}
}

// view is what the layout needs to know, and Data what its page does.
type view struct {
	Title string
	Nav   string // the page's entry of the navigation
	Now   time.Time
	Head  head
	// By and Role tell whose session it is; Role is empty without one.
	By, Role, CSRF string
	Operate        bool
	// Live says that the page has a stream.
	Live bool
	Data any
}

// head is the line that every page has: how things stand.
type head struct {
	Text string
	Tone string // bad, hold, good or unknown
	Now  time.Time
}

// newView is the view of a request, without a look at anything.
func newView(r *http.Request, title string) *view {
	caller := admin.CallerOf(r.Context())
	v := &view{Title: title, Now: time.Now(), By: caller.Session.By, CSRF: caller.Session.CSRF, Operate: caller.Role >= admin.RoleOperate}
	if caller.Role >= admin.RoleRead {
		v.Role = caller.Role.String()
	}
	return v
}

// write answers with a page.
func (c *console) write(w http.ResponseWriter, r *http.Request, status int, name string, v *view) {
	if v.Role != "" && v.Head.Text == "" {
		_, _ = c.look(r.Context(), v) // the head says it if there is none
	}
	var out bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&out, "layout", v); err != nil {
		http.Error(w, "The page can't be drawn.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // who has gone needs no page
}

// look asks how things stand, keeps it for the charts, and fills in the head.
func (c *console) look(ctx context.Context, v *view) (operate.Status, error) {
	status, err := c.surface.Status(ctx)
	v.see(&status, err)
	if err == nil {
		c.history.add(&status)
	}
	return status, err
}

func (v *view) see(status *operate.Status, err error) {
	if err != nil {
		v.Head = head{Text: "The outbox can't be looked at", Tone: "unknown", Now: v.Now}
		return
	}
	v.Now = status.At
	v.Head.Now = status.At
	v.Head.Text, v.Head.Tone = headline(status)
}

// problem is an error that says to its reader what to do, and what the answer's
// status is.
type problem struct {
	Status int
	Title  string
	Text   string
}

func (p *problem) Error() string { return p.Text }

// fail answers with what was wrong.
func (c *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	v := newView(r, p.Title)
	v.Data = p
	c.write(w, r, p.Status, "problem.html", v)
}

func problemOf(err error) *problem {
	var p *problem
	var field *gobridge.FieldError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, gobridge.ErrNotFound):
		return &problem{http.StatusNotFound, "Not found", err.Error()}
	case errors.Is(err, gobridge.ErrInvalidCursor):
		return wrong("The address leads to no page of this list: begin with the first one.")
	case errors.As(err, &field), errors.Is(err, gobridge.ErrInvalidRecord):
		return &problem{http.StatusUnprocessableEntity, "Not possible", err.Error()}
	case errors.Is(err, gobridge.ErrDeadLettersFull), errors.Is(err, gobridge.ErrLeaseHeld):
		return &problem{http.StatusConflict, "Not now", err.Error()}
	}
	return &problem{http.StatusServiceUnavailable, "Not done", err.Error()}
}

// wrong says that a request makes no sense.
func wrong(text string) *problem { return &problem{http.StatusBadRequest, "That makes no sense", text} }

func (c *console) missing(w http.ResponseWriter, r *http.Request) {
	if admin.CallerOf(r.Context()).Role < admin.RoleRead {
		c.askLogin(w, r)
		return
	}
	c.fail(w, r, &problem{http.StatusNotFound, "No such page", "There is no page at this address. The links above lead to those there are."})
}

// static serves the files; the version in their addresses changes with them.
func (c *console) static() http.Handler {
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("v") == c.version {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		server.ServeHTTP(w, r)
	})
}

// local is the address of a page of this console, as safe as it was when it came.
func local(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || len(text) > maxLocal || len(u.Path) == 0 || u.Path[0] != '/' || len(u.Path) > 1 && (u.Path[1] == '/' || u.Path[1] == '\\') {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

// maxLocal bounds an address that a form carries along.
const maxLocal = 8 << 10
