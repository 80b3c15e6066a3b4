package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"gobridge"
)

// TestDescriptionIsTheAPI holds the endpoints against the description: the same
// paths, methods and parameters are in both, and the tests below know them all.
func TestDescriptionIsTheAPI(t *testing.T) {
	api, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	described := map[string][]string{}
	for path, item := range api.Paths.Map() {
		rest, isAPI := strings.CutPrefix(path, apiPrefix)
		for method, operation := range item.Operations() {
			if !isAPI {
				continue
			}
			names := []string{}
			for _, p := range operation.Parameters {
				names = append(names, p.Value.Name)
			}
			slices.Sort(names)
			described[method+" "+rest] = names
		}
	}
	tested := pathsOf(good())
	for _, e := range endpoints() {
		name := e.method + " " + e.path
		parameters, ok := described[name]
		own := append([]string{}, e.parameters...)
		slices.Sort(own)
		if !ok || !slices.Equal(parameters, own) {
			t.Errorf("%s: described with parameters %v, it has %v", name, parameters, own)
		}
		if !slices.Contains(tested, name) {
			t.Errorf("%s is not tested", name)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s is described and does not exist", name)
	}
}

func TestEveryEndpointByRole(t *testing.T) {
	w := newWorld(t, reloading)
	w.fill()
	w.old()
	roles := map[string]Role{}
	for _, e := range endpoints() {
		roles[e.method+" "+e.path] = e.role
	}
	for i, c := range good() {
		name := pathsOf([]call{c})[0]
		t.Run(name, func(t *testing.T) {
			c := c
			c.path = apiPrefix + c.path
			if a := w.ask("", c); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("without a token: %d %s", a.status, a.body)
			}
			if i < 3 { // more would be too many of one address
				if a := w.ask("some-other-long-token", c); a.status != http.StatusUnauthorized || !strings.Contains(a.problem(t).Detail, "wrong") {
					t.Errorf("with a wrong token: %d %s", a.status, a.body)
				}
			}
			foreign, elsewhere := c, c
			foreign.header = append([]string{"Origin", "https://evil.example"}, c.header...)
			if a := w.ask(operateToken, foreign); c.method == "POST" && a.status != http.StatusForbidden {
				t.Errorf("of a foreign origin: %d %s", a.status, a.body)
			}
			elsewhere.host = "evil.example"
			if a := w.ask(operateToken, elsewhere); a.status != http.StatusMisdirectedRequest {
				t.Errorf("for another host: %d %s", a.status, a.body)
			}
			want := http.StatusOK
			if roles[name] == RoleOperate || name == "GET /dead/export" {
				want = http.StatusForbidden
			}
			if a := w.ask(readToken, c); a.status != want {
				t.Errorf("with the role read: %d %s", a.status, a.body)
			}
			if body := w.api.Paths.Find(strings.Split(c.path, "?")[0]).GetOperation(c.method).RequestBody; body != nil {
				for _, content := range body.Value.Content {
					w.fits(content.Schema.Value, c.body)
				}
			}
			a := w.ask(operateToken, c)
			if a.status != http.StatusOK || a.body == "" {
				t.Errorf("with the role operate: %d %s", a.status, a.body)
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", a.header)
			}
			other := c
			if other.method = "DELETE"; true {
				if a := w.ask(operateToken, other); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != c.method {
					t.Errorf("DELETE: %d %v", a.status, a.header)
				}
			}
			other = c
			other.path += map[bool]string{true: "&", false: "?"}[strings.Contains(c.path, "?")] + "bindng=crm"
			if a := w.ask(operateToken, other); a.status != http.StatusBadRequest || a.problem(t).Field != "bindng" {
				t.Errorf("a misspelt parameter: %d %s", a.status, a.body)
			}
		})
	}
	log := w.log.String()
	if !strings.Contains(log, `by="ann (operate token)"`) || strings.Contains(log, operateToken) || strings.Contains(log, "some-other-long-token") {
		t.Errorf("the log says\n%s", log)
	}
	entries, err := w.store.ListAudit(t.Context(), 100)
	w.must(err)
	var done []string
	for _, e := range entries {
		if e.By != "ann (operate token)" || !strings.HasSuffix(e.Reason, "because") {
			t.Errorf("audit: %+v", e)
		}
		done = append(done, string(e.Action)+" "+e.Scope)
	}
	for _, want := range []string{"pause orders", "resume orders", `halt orders/crm key "\xff"`, "retry orders/crm", "discard old/crm/0"} {
		if !slices.ContainsFunc(done, func(d string) bool { return strings.HasPrefix(d, want) }) {
			t.Errorf("the audit has no %q: %q", want, done)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	long := strings.Repeat("x", maxReason+1)
	for _, tt := range []struct {
		name, path, body string
		status           int
		field, detail    string
	}{
		{"no reason", "/pause", `{"target":"orders"}`, 400, "reason", "say why"},
		{"a reason of blanks", "/pause", `{"target":"orders","reason":"  "}`, 400, "reason", "say why"},
		{"a reason that is too long", "/pause", `{"target":"orders","reason":"` + long + `"}`, 400, "reason", "the limit is 1000"},
		{"a reason for terminals", "/pause", `{"target":"orders","reason":"\u001b[2J"}`, 400, "reason", "control characters"},
		{"a name that is too long", "/pause", `{"target":"orders","reason":"r","by":"` + long + `"}`, 400, "by", "the limit is 100"},
		{"no such route", "/pause", `{"target":"ordrs","reason":"r"}`, 404, "", "there is orders/billing, orders/crm"},
		{"no target", "/pause", `{"target":"a b/c/d/e","reason":"r"}`, 400, "target", "is no route"},
		{"a pause of a key", "/pause", `{"target":"orders","key":"k","reason":"r"}`, 400, "key", "does not belong here"},
		{"a halt of nothing", "/halt", `{"target":"orders/crm","reason":"r"}`, 400, "key", "is missing"},
		{"a halt in a route", "/halt", `{"target":"orders","key":"k","reason":"r"}`, 400, "target", "is a route"},
		{"a halt of both", "/halt", `{"target":"orders/crm","key":"k","id":"i","reason":"r"}`, 400, "id", "contradicts key"},
		{"nothing to resume", "/resume", `{"target":"orders","reason":"r"}`, 404, "", "nothing holds orders"},
		{"an unknown field", "/pause", `{"target":"orders","reson":"r"}`, 400, "body", `unknown field "reson"`},
		{"no JSON", "/pause", `target=orders`, 400, "body", "is not the JSON object"},
		{"an array", "/pause", `[]`, 400, "body", "is not the JSON object"},
		{"nothing", "/pause", ``, 400, "body", "is not the JSON object"},
		{"two objects", "/pause", `{"target":"orders","reason":"r"}{}`, 400, "body", "goes on after"},
		{"too much", "/pause", `{"target":"` + strings.Repeat("x", maxBody) + `"}`, 413, "", "more than 1048576 bytes"},
		{"everything", "/jobs", `{"kind":"redrive","filter":{},"reason":"r"}`, 400, "filter.route", "is missing"},
		{"retry everything", "/retry", `{"filter":{},"reason":"r"}`, 400, "filter.route", "is missing"},
		{"another kind", "/jobs", `{"kind":"burn","filter":{"route":"orders"},"reason":"r"}`, 400, "kind", "redrive or discard"},
		{"a discard of no states", "/jobs", `{"kind":"discard","filter":{"route":"orders"},"reason":"r"}`, 400, "filter.states", "pending, dead or both"},
		{"another state", "/jobs", `{"kind":"discard","filter":{"route":"orders","states":["claimed"]},"reason":"r"}`, 400, "states", "pending and dead"},
		{"a negative max", "/jobs", `{"kind":"redrive","max":-1,"filter":{"route":"orders"},"reason":"r"}`, 400, "max", "below zero"},
		{"a negative pace", "/jobs", `{"kind":"redrive","pace":-1,"filter":{"route":"orders"},"reason":"r"}`, 400, "pace", "below zero"},
		{"a job for no reason", "/jobs", `{"kind":"redrive","filter":{"route":"orders"}}`, 400, "reason", "say why"},
		{"a key and none", "/jobs", `{"kind":"redrive","filter":{"route":"orders","key":"k","no_key":true},"reason":"r"}`, 400, "no_key", "contradicts key"},
		{"a move of a route", "/move", `{"from":"orders","to":"orders/crm","reason":"r"}`, 400, "from", "name a binding"},
		{"a move to nowhere", "/move", `{"from":"orders/crm","to":"orders/crn","reason":"r"}`, 404, "", "orders/crn"},
		{"an end of what is configured", "/end-removed", `{"target":"orders/crm","reason":"r"}`, 409, "", "is in the configuration"},
		{"an import of nonsense", "/dead/import?reason=r", `{}`, 422, "", "line 1: no dead letter"},
		{"an import for no reason", "/dead/import", `{}`, 400, "reason", "say why"},
		{"no reload", "/reload", `{"reason":"r"}`, 501, "", "start it again"},
		{"no such thing", "/nothing", ``, 404, "", "openapi.yaml describes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := w.ask(operateToken, call{method: "POST", path: apiPrefix + tt.path, body: tt.body})
			p := a.problem(t)
			if a.status != tt.status || p.Field != tt.field || !strings.Contains(p.Detail, tt.detail) || p.Title != http.StatusText(tt.status) {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	for path, field := range map[string]string{
		"/explain": "q", "/explain?q=x&kind=y": "kind", "/known": "target", "/known?target=a%20b": "target", "/removed": "route",
		"/record?target=orders/crm": "id", "/audit?limit=0": "limit", "/audit?limit=99999": "limit", "/dead?limit=1001": "limit", "/dead?cursor=nonsense": "cursor",
		"/dead?ended_from=yesterday": "ended_from", "/dead?no_key=perhaps": "no_key", "/dead?route=a&route=b": "route", "/dead?route=%zz": "query",
		"/holding?target=orders/crm&key=k&id=i": "id",
	} {
		if a := w.ask(readToken, call{method: "GET", path: apiPrefix + path}); a.status != 400 || a.problem(t).Field != field {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	a := w.ask(operateToken, call{method: "POST", path: apiPrefix + "/pause", body: "target=orders", header: []string{"Content-Type", "application/x-www-form-urlencoded"}})
	if a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form: %d %s", a.status, a.body)
	}
	if controls, err := w.store.ListControls(t.Context()); err != nil || len(controls) > 0 {
		t.Errorf("something holds: %+v, %v", controls, err)
	}
}

func TestPayloadsByRole(t *testing.T) {
	const secret = "the payload of m-2"
	for _, tt := range []struct {
		payloads Role
		sees     map[string]bool
	}{
		{RoleNone, map[string]bool{readToken: false, operateToken: true}},
		{RoleRead, map[string]bool{readToken: true, operateToken: true}},
		{RoleNobody, map[string]bool{readToken: false, operateToken: false}},
	} {
		t.Run(tt.payloads.String(), func(t *testing.T) {
			w := newWorld(t, func(o *Options) { o.Payloads = tt.payloads })
			w.fill()
			for token, sees := range tt.sees {
				record := w.ask(token, call{method: "GET", path: apiPrefix + "/record?target=orders/crm&id=m-2"})
				export := w.ask(token, call{method: "GET", path: apiPrefix + "/dead/export?route=orders"})
				if strings.Contains(record.body, secret) != sees || strings.Contains(export.body, secret) != sees || record.status != 200 {
					t.Errorf("%s: %s\n%s", token, record.body, export.body)
				}
				if strings.Contains(record.body, "payload_withheld") == sees || !strings.Contains(record.body, `"payload_bytes":18`) {
					t.Errorf("%s: %s", token, record.body)
				}
				for _, path := range []string{"/dead?route=orders", "/explain?q=m-2", "/status"} {
					if a := w.ask(token, call{method: "GET", path: apiPrefix + path}); strings.Contains(a.body, "the payload") {
						t.Errorf("%s: %s", path, a.body)
					}
				}
				r, err := w.client(token).Get(t.Context(), target(t, "orders/crm"), "m-2")
				if sees != (err == nil) || sees && string(r.Envelope.Payload) != secret || !sees && !errors.Is(err, ErrNotAllowed) {
					t.Errorf("%s: the client has %q, %v", token, r.Envelope.Payload, err)
				}
			}
		})
	}
}

func TestDelivery(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Desk = aged{o.Desk}
		o.UnhealthyAfterOf = func(route, _ string) time.Duration {
			return map[string]time.Duration{"old": -1}[route] // it may wait; of the others nothing is said
		}
	})
	w.fill()
	w.old()
	a := w.ask(readToken, call{method: "GET", path: apiPrefix + "/delivery"})
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"binding":"crm","healthy":false`) || !strings.Contains(a.body, `"binding":"billing","healthy":true`) ||
		!strings.Contains(a.body, `"route":"old","binding":"crm","healthy":true`) || strings.Count(a.body, `"limit_seconds":900`) != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestDeskErrors(t *testing.T) {
	for want, err := range map[int]error{
		503: errors.New("disk I/O error"), 409: fmt.Errorf("wrapped: %w", gobridge.ErrLeaseHeld), 422: &gobridge.FieldError{Field: "Route", Problem: "is empty"},
		404: gobridge.ErrNotFound,
	} {
		w := newWorld(t, func(o *Options) { o.Desk = failing{o.Desk, err} })
		a := w.ask(readToken, call{method: "GET", path: apiPrefix + "/audit"})
		if p := a.problem(t); a.status != want || !strings.Contains(p.Detail, err.Error()) {
			t.Errorf("%v: %d %s", err, a.status, a.body)
		}
		if logged := strings.Contains(w.log.String(), "level=ERROR"); logged != (want == 503) {
			t.Errorf("%v: logged: %v", err, logged)
		}
		w.stop()
	}
}

// failing is a desk whose audit can't be read.
type failing struct {
	Desk
	err error
}

func (f failing) Audit(context.Context, int) ([]gobridge.AuditEntry, error) { return nil, f.err }
