package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"

	"gobridge"
	"gobridge/admin"
	"gobridge/messaging"
	"gobridge/operate"
)

func everyPage() []string {
	return []string{
		"/", "/binding?target=orders/crm", "/binding?target=orders/billing", "/partitions", "/keys", "/holds", "/explain", "/explain?q=cust-7", "/explain?q=m-1&kind=id",
		"/explain?q=nowhere", "/record?target=orders/crm&id=m-1", "/record?target=orders/billing&id=d-1", "/dead", "/dead?target=orders/billing&cause=exhausted&after=2h", "/audit", "/config", "/help",
	}
}

func TestFirstPageSaysWhatIsStuckWhyAndWhatToDo(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(operateToken)
	body := b.page("/")
	has(t, body, "All is well", "Nothing is stuck. Nobody needs to get up.")
	w.bad()
	b = w.login(operateToken)
	eventually(t, "the page tells of the bad night", func() bool { return strings.Contains(b.page("/"), "2 bindings need you") })
	body = b.page("/")
	has(t, body, "orders/crm", "4 pending", "down for 42m", "next probe in 59m", "POST https://crm.example.com/h: 401 Unauthorized", "it refuses our credential", "Retry now…", "gobridge retry orders/crm",
		"key cust-7 is halted", "422 unknown sku", "Resume…", "gobridge resume orders/billing --key cust-7", "5 dead letters wait for a person", "See dead letters")
	if down, halted := strings.Index(body, "401 Unauthorized"), strings.Index(body, "422 unknown sku"); down > halted {
		t.Error("the destination that is down stands below the halted key")
	}
}

func TestEveryPageIsSound(t *testing.T) {
	for _, state := range []string{"empty", "bad"} {
		w := newWorld(t, nil)
		if state == "bad" {
			w.bad()
		}
		for _, token := range []string{readToken, operateToken} {
			b := w.login(token)
			for _, path := range everyPage() {
				status, body := b.get(path)
				want := http.StatusOK
				if state == "empty" && strings.HasPrefix(path, "/record") {
					want = http.StatusNotFound
				}
				if status != want {
					t.Errorf("%s: %d %s", path, status, textOf(body))
				}
				sound(t, state+" "+path, body)
			}
		}
		body := w.browser().page("/dead?error=a%26b")
		has(t, body, "Log in", "Token", `value="/dead?error=a%26b"`)
		sound(t, "login", body)
	}
}

func TestPolicyOfPagesAndFiles(t *testing.T) {
	w := newWorld(t, nil)
	b := w.login(readToken)
	files := 0
	for n := range document(t, b.page("/")).Descendants() {
		address, ok := attribute(n, "href")
		if source, is := attribute(n, "src"); is {
			address, ok = source, true
		}
		if !ok || !strings.HasPrefix(address, "/static/") {
			continue
		}
		files++
		answer, err := w.browser().client.Get(w.url + address)
		w.must(err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %s, %s", address, answer.Status, answer.Header.Get("Cache-Control"))
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("policy %q", policy)
		}
	}
	if files != 3 {
		t.Errorf("%d files", files)
	}
}

// hostile are texts that would break a page that trusts them.
func hostile() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, "{{.}}", "%00&id=other#x",
		"invoice\u202egnp.exe", "zero\u200bwidth", "a\x00b", "line\r\nbreak", "\xff\xfe\xc0", "../../etc/passwd", "--id", "'; rm -rf /; '", strings.Repeat("long ", 100),
	}
}

func TestHostileTextsAreShownAndActedOn(t *testing.T) {
	w := newWorld(t, nil)
	for _, text := range hostile() {
		r := dead(message(billing, text, text), text)
		r.Envelope.Payload, r.Envelope.Subject, r.Envelope.ContentType, r.Reason = []byte(text), text, text, text
		r.Envelope.Headers = messaging.Headers{"x": text}
		w.persist(r)
		w.must(w.store.SetControl(t.Context(), gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: text, Reason: text, By: text}))
	}
	b := w.login(operateToken)
	list := b.page("/dead?target=orders/billing")
	for _, path := range []string{"/", "/keys", "/holds", "/audit", "/dead?" + url.Values{"error": {hostile()[1]}, "key": {hostile()[0]}, "id": {"\xff\u202e"}, "before": {"<b>"}}.Encode()} {
		body := b.page(path)
		sound(t, path, body)
		hasNot(t, body, "<script>alert", "<img", "onmouseover='")
	}
	sound(t, "list", list)
	var links []string
	for n := range document(t, list).Descendants() {
		if href, _ := attribute(n, "href"); strings.HasPrefix(href, "/record?") {
			links = append(links, href)
		}
	}
	if len(links) != len(hostile()) {
		t.Fatalf("%d links to messages", len(links))
	}
	for i, text := range hostile() {
		body := b.page(links[i])
		sound(t, links[i], body)
		has(t, body, strings.Join(strings.Fields(short(text)), " "))
		for _, as := range []string{"text", "hex"} {
			sound(t, as, b.page(links[i]+"&as="+as))
		}
		sound(t, "explain", b.page("/explain?"+url.Values{"q": {text}}.Encode()))
		// The form of the page goes to the right message, whatever bytes it has.
		act := "/act?" + url.Values{"do": {doDiscardDead}, "target": {"orders/billing"}, "id": {text}}.Encode()
		form := b.page(act)
		sound(t, act, form)
		status, done := b.post(formOf(t, form), url.Values{"reason": {text + " is no message"}})
		if status != http.StatusOK || w.state(billing, text) != gobridge.StateDiscarded {
			t.Errorf("discard %q: %d %s; it is %s", text, status, textOf(done), w.state(billing, text))
		}
		status, done = b.post("/act?"+url.Values{"do": {doResume}, "target": {"orders/crm"}, "key": {text}}.Encode(), url.Values{"reason": {"over"}})
		if status != http.StatusOK {
			t.Errorf("resume %q: %d %s", text, status, textOf(done))
		}
	}
	sound(t, "audit", b.page("/audit"))
}

// formOf is where the form of an act's page goes.
func formOf(t testing.TB, body string) string {
	t.Helper()
	for n := range document(t, body).Descendants() {
		if action, _ := attribute(n, "action"); n.Data == "form" && strings.HasPrefix(action, "/act?") {
			return action
		}
	}
	t.Fatalf("no form:\n%s", textOf(body))
	return ""
}

func TestPayloads(t *testing.T) {
	w := newWorld(t, nil)
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for id, payload := range map[string]string{
		"json": `{"a":{"b":["<i>",null]}}`, "deep": deep, "text": "first\nsecond\tthird", "binary": "\x00\x01\xfe\xff", "none": "",
		"big": strings.Repeat("0123456789abcdef", 10<<16), "script": `"</pre><script>alert(1)</script>"`,
	} {
		r := dead(message(billing, id, ""), "")
		r.Envelope.Payload = []byte(payload)
		w.persist(r)
	}
	b := w.login(operateToken)
	show := func(id, as string) string {
		t.Helper()
		body := b.page("/record?target=orders/billing&id=" + id + "&as=" + as)
		sound(t, id, body)
		if len(body) > 400<<10 {
			t.Errorf("%s as %s: a page of %d bytes", id, as, len(body))
		}
		for n := range document(t, body).Descendants() {
			if role, _ := attribute(n, "role"); n.Data == "pre" && role == "region" {
				return n.FirstChild.Data
			}
		}
		return textOf(body)
	}
	for _, c := range []struct{ id, as, want string }{
		{"json", "", "{\n  \"a\": {\n    \"b\": [\n      \"<i>\",\n      null\n    ]\n  }\n}"}, {"json", "text", `{"a":{"b":["<i>",null]}}`}, {"json", "hex", "00000000  7b 22 61"},
		{"json", "nonsense", "{\n  \"a\""}, {"deep", "", "[[[["}, {"text", "", "first\nsecond\tthird"}, {"text", "json", "first\nsecond"}, {"binary", "", "00000000  00 01 fe ff"},
		{"binary", "text", `\x00\x01\xfe\xff`}, {"none", "", "It is empty."}, {"big", "", "0123456789abcdef0123"}, {"script", "", `"</pre><script>alert(1)</script>"`},
	} {
		if got := show(c.id, c.as); !strings.Contains(got, c.want) {
			t.Errorf("%s as %q is %.200q, want %q", c.id, c.as, got, c.want)
		}
	}
	has(t, b.page("/record?target=orders/billing&id=big"), "10.0 MB", "the first 64.0 KB of it")
	// Who may not see payloads sees how large they are.
	r := w.login(readToken)
	body := r.page("/record?target=orders/billing&id=json")
	has(t, body, "24 bytes. Payloads are shown to the role operate.")
	hasNot(t, body, "&lt;i&gt;", "<i>")
	nobody := newWorld(t, func(_ *world, o *admin.Options) { o.Payloads = admin.RoleNobody })
	nobody.persist(dead(message(billing, "json", ""), ""))
	body = nobody.login(operateToken).page("/record?target=orders/billing&id=json")
	has(t, body, "shows payloads to nobody")
	hasNot(t, body, "payload of json")
}

func TestTenThousandRows(t *testing.T) {
	w := newWorld(t, nil)
	var batch []gobridge.Record
	for i := range 10_000 {
		batch = append(batch, dead(message(billing, fmt.Sprintf("d-%05d", i), fmt.Sprintf("k-%d", i)), "500 was down"))
	}
	w.persist(batch...)
	for i := range 10_000 {
		w.must(w.store.SetControl(t.Context(), gobridge.Control{Kind: gobridge.Halt, Route: "orders", Binding: "crm", OrderingKey: fmt.Sprintf("k-%d", i), Reason: "full"}))
	}
	b := w.login(operateToken)
	for _, path := range append(everyPage(), "/act?do=redrive&target=orders/billing", "/act?do=discard-dead&target=orders/billing&error=500*", "/holds?page=100", "/keys?page=99999999999999999999", "/keys?page=-1") {
		if strings.HasPrefix(path, "/record") {
			continue
		}
		body := b.page(path)
		sound(t, path, body)
		if len(body) > 250<<10 {
			t.Errorf("%s has %d bytes", path, len(body))
		}
	}
	has(t, b.page("/act?do=redrive&target=orders/billing"), "Send 1,000 or more dead letters of orders/billing again.")
	has(t, b.page("/keys?page=100"), "9,901 to 10,000 of 10,000")
	// Page by page, every dead letter is there once.
	seen, path := map[string]bool{}, "/dead?target=orders/billing&error=500*"
	for pages := 0; path != ""; pages++ {
		if pages > 10_000/deadRows {
			t.Fatal("the pages do not end")
		}
		body := b.page(path)
		path = ""
		for n := range document(t, body).Descendants() {
			href, _ := attribute(n, "href")
			if rel, _ := attribute(n, "rel"); rel == "next" {
				path = href
			}
			if strings.HasPrefix(href, "/record?") {
				seen[href] = true
			}
		}
	}
	if len(seen) != 10_000 {
		t.Errorf("%d dead letters on the pages", len(seen))
	}
}

func TestWhatMakesNoSenseIsSaid(t *testing.T) {
	w := newWorld(t, nil)
	w.bad()
	b := w.login(operateToken)
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/nowhere":                                  {404, "There is no page at this address"},
		"/binding":                                  {400, "names no binding"},
		"/binding?target=a/b":                       {404, "There is no binding a/b"},
		"/binding?target=%FF":                       {400, "no route (orders)"},
		"/record?target=orders/crm&id=none":         {404, "not found"},
		"/audit?limit=0":                            {400, "from 1 to 10000"},
		"/dead?before=yesterday":                    {200, "yesterday is no time"},
		"/dead?cursor=nonsense":                     {400, "begin with the first one"},
		"/act?do=explode&target=orders/crm":         {400, "There is no such act"},
		"/act?do=retry&target=nobody/x":             {404, "there is orders/billing, orders/crm"},
		"/act?do=move&target=orders/crm":            {400, "no route"},
		"/act?do=reload":                            {400, "start it again"},
		"/act?do=halt&target=orders":                {400, "To stop a whole route, pause it."},
		"/act?do=halt&target=orders/crm&key=a&id=b": {400, "give one of them"},
	} {
		status, body := b.get(path)
		sound(t, path, body)
		if status != want.status {
			t.Errorf("%s: %d, want %d: %s", path, status, want.status, textOf(body))
		}
		has(t, body, want.text)
	}
}

func TestReadRoleSeesEverythingAndChangesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.bad()
	b := w.login(readToken)
	for _, path := range everyPage() {
		for n := range document(t, b.page(path)).Descendants() {
			href, _ := attribute(n, "href")
			action, _ := attribute(n, "action")
			if n.Type == html.ElementNode && (strings.HasPrefix(href, "/act") || strings.HasPrefix(action, "/act")) {
				t.Errorf("%s offers %s", path, href+action)
			}
		}
	}
	has(t, b.page("/"), "gobridge retry orders/crm") // what it would be is no secret
	before, err := w.store.ListAudit(t.Context(), 100)
	w.must(err)
	for _, do := range []string{doRetry, doRedrive, doDiscard, doDiscardDead, doPause, doHalt, doResume, doMove, doReload} {
		path := "/act?" + url.Values{"do": {do}, "target": {"orders/billing"}, "to": {"orders/crm"}, "key": {"cust-7"}}.Encode()
		if status, body := b.get(path); status != http.StatusForbidden {
			t.Errorf("GET %s: %d %s", path, status, textOf(body))
		}
		if status, body := b.post(path, url.Values{"reason": {"I want"}}); status != http.StatusForbidden {
			t.Errorf("POST %s: %d %s", path, status, textOf(body))
		}
	}
	after, err := w.store.ListAudit(t.Context(), 100)
	w.must(err)
	if !slices.Equal(before, after) {
		t.Errorf("something was done: %+v", after)
	}
}

func TestConfigIsEscaped(t *testing.T) {
	w := newWorld(t, nil)
	body := w.login(readToken).page("/config")
	if !bytes.Contains([]byte(body), []byte("version: 1 # &lt;b&gt;")) {
		t.Error(body)
	}
}

// counting is a desk that counts what it is asked.
type counting struct {
	*operate.Desk
	mu    sync.Mutex
	calls map[string]int
	limit int // the largest
}

func (c *counting) count(name string, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
	c.limit = max(c.limit, limit)
}

// taken returns what was counted, and begins anew.
func (c *counting) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls
	c.calls = map[string]int{}
	return out
}

func (c *counting) Status(ctx context.Context) (operate.Status, error) {
	c.count("status", 0)
	return c.Desk.Status(ctx)
}

func (c *counting) Controls(ctx context.Context) ([]gobridge.Control, error) {
	c.count("controls", 0)
	return c.Desk.Controls(ctx)
}

func (c *counting) Explain(ctx context.Context, q operate.Question) ([]operate.Answer, error) {
	c.count("explain", 0)
	return c.Desk.Explain(ctx, q)
}

func (c *counting) Get(ctx context.Context, t operate.Target, id string) (gobridge.Record, error) {
	c.count("get", 0)
	return c.Desk.Get(ctx, t, id)
}

func (c *counting) Dead(ctx context.Context, q gobridge.DeadQuery) (operate.DeadPage, error) {
	c.count("dead", q.Limit)
	return c.Desk.Dead(ctx, q)
}

func (c *counting) Audit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	c.count("audit", limit)
	return c.Desk.Audit(ctx, limit)
}

func (c *counting) Do(ctx context.Context, job operate.Job, who operate.Who, progress func(int)) (operate.BulkReport, error) {
	c.count("do", job.Max)
	if job.Max == 0 {
		c.count("do without a bound", 0)
	}
	return c.Desk.Do(ctx, job, who, progress)
}

// TestAPageCostsOneLook counts what pages and streams ask the desk.
func TestAPageCostsOneLook(t *testing.T) {
	desk := &counting{calls: map[string]int{}}
	w := newWorld(t, func(w *world, o *admin.Options) { desk.Desk, o.Desk = w.desk, desk })
	w.bad()
	b := w.login(operateToken)
	for _, path := range append(everyPage(), "/act?do=redrive&target=orders/billing", "/act?do=discard&target=orders/crm") {
		desk.taken()
		b.page(path)
		for name, n := range desk.taken() {
			if n > 1 || name == "do without a bound" {
				t.Errorf("%s: %d of %s", path, n, name)
			}
		}
	}
	if desk.limit > maxDry {
		t.Errorf("a page asks for %d rows", desk.limit)
	}
	// However many look, one look a second is enough.
	var open []*listener
	for range 20 {
		open = append(open, b.listen("/keys", ""))
	}
	desk.taken()
	const rounds = 3
	for range rounds {
		for _, l := range open {
			l.until("a sign of life", func(e event) bool { return e.name == "head" })
		}
	}
	if calls := desk.taken(); calls["status"] > 2*rounds || calls["controls"] > 2*rounds {
		t.Errorf("%v of 20 streams in %d rounds", calls, rounds)
	}
}

// TestDeadLettersThatFewMatch: a page looks at so many and no more, and says that there
// are more where it found none.
func TestDeadLettersThatFewMatch(t *testing.T) {
	w := newWorld(t, nil)
	var all []gobridge.Record
	for i := range 1500 {
		all = append(all, dead(message(billing, fmt.Sprintf("m-%04d", i), ""), "500 was down"))
	}
	all[1400].Error = "422 not valid"
	w.persist(all...)
	b := w.login(readToken)
	body := b.page("/dead?error=422*")
	has(t, body, "None of those looked at so far is like that", "Look on")
	for n := range document(t, body).Descendants() {
		if rel, _ := attribute(n, "rel"); rel == "next" {
			href, _ := attribute(n, "href")
			body = b.page(href)
			break
		}
	}
	has(t, body, "m-1400")
	hasNot(t, body, "Look on", "m-1401")
}
