package faults

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"slices"
	"strings"
	"time"

	"gobridge/operate"
)

// polls is how often the overview is looked at, a second apart, until it must show a
// fault: that is within ten seconds.
const polls = 10

// browser is one that has logged in to the console of an admin listener.
type browser struct {
	rig    *rig
	client *http.Client
	admin  string
}

// login opens the console of a listener.
func (r *rig) login(admin string) *browser {
	r.Helper()
	jar, err := cookiejar.New(nil)
	r.must(err)
	c := &browser{rig: r, client: &http.Client{Jar: jar}, admin: admin}
	r.must(logIn(r.Context(), c.client, "http://"+admin))
	return c
}

// overview returns what a person reads on the first page.
func (c *browser) overview() string {
	c.rig.Helper()
	request, err := http.NewRequestWithContext(c.rig.Context(), http.MethodGet, "http://"+c.admin+"/", nil)
	c.rig.must(err)
	status, body := c.rig.do(c.client, request)
	if status != http.StatusOK {
		return ""
	}
	return visible(body)
}

var (
	unseen = regexp.MustCompile(`(?s)<(script|style|svg)\b.*?</(script|style|svg)>|<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// visible is the text of a page, on one line.
func visible(page string) string {
	return flat(html.UnescapeString(unseen.ReplaceAllString(page, " ")))
}

func flat(text string) string { return strings.TrimSpace(blanks.ReplaceAllString(text, " ")) }

// finding returns what a status says of a state.
func finding(s *operate.Status, state string) *operate.Finding {
	all := slices.Concat(s.Store, s.Process)
	for _, b := range s.Bindings {
		all = append(all, b.Findings...)
	}
	if i := slices.IndexFunc(all, func(f operate.Finding) bool { return f.State == state }); i >= 0 {
		return &all[i]
	}
	return nil
}

// shows looks at the overview, a second apart, until the admin API, the console and
// the command status all show a state, and returns what they say of it.
func (r *rig) shows(admin, command, state string) operate.Finding {
	r.Helper()
	c := r.login(admin)
	var missing string
	for range polls {
		var found *operate.Finding
		if found, missing = r.look(c, command, state); missing == "" {
			return *found
		}
		time.Sleep(time.Second)
	}
	r.Fatalf("after %d polls, a second apart, %s", polls, missing)
	return operate.Finding{}
}

// look says what does not show a state yet.
func (r *rig) look(c *browser, command, state string) (found *operate.Finding, missing string) {
	r.Helper()
	var status operate.Status
	_, body := r.get(c.admin, "/api/v1/status")
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		return nil, "the API answers " + body
	}
	if found = finding(&status, state); found == nil {
		return nil, "the API does not show it: " + body
	}
	text := strings.TrimPrefix(strings.TrimPrefix(found.Text, found.State+": "), found.State+" ")
	if page := c.overview(); !strings.Contains(plain(page), plain(text)) {
		return nil, "the console does not say " + text + ", but " + page
	}
	if exit, out := r.run(command); exit == 0 && !found.Note || !strings.Contains(plain(out), plain(text)) {
		return nil, command + " does not say " + text + ", but " + out
	}
	return found, ""
}

// The parts of texts that differ from run to run, and what stands for them.
var differing = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[A-Za-z0-9.-]+-\d+-[0-9A-Z]{8}\b`), "host-4711-5ZB4T9WR"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "https://crm.example.com"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "192.0.2.7:443"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d\b`), "2027-12-01 02:13"},
	{regexp.MustCompile(`this machine's clock \([0-9: -]+\)`), "this machine's clock (2026-12-02 02:13)"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "02:13:07"},
	{regexp.MustCompile(`orders/crm: (nothing waits|\d+ waits?(, the oldest for \w+)?)`), "orders/crm: 2 wait, the oldest for 12s"},
	{regexp.MustCompile(`did not get through|failed (once|twice|\d+ times)`), "failed once"},
	{regexp.MustCompile(`kill (-HUP )?\d+`), "kill ${1}4711"},
	{regexp.MustCompile(`process \d+ on [\w.-]+`), "process 4711 on host"},
	{regexp.MustCompile(`(oldest for|in|for) \d+[smhd](\d+m)?\b`), "$1 12s"},
	{regexp.MustCompile(`tried again at .*? \(in \w+\)`), "tried again at 03:13:07 (in 60m)"},
	{regexp.MustCompile(`\d+ of the last \d+ (requests to it were refused) \(\w+\)`), "9 of the last 12 $1 (TableWriteKeyRangeThroughputExceeded)"},
	{regexp.MustCompile(`takes \d+ MiB`), "takes 900 MiB"},
	{regexp.MustCompile(`has \d+ MiB left`), "has 3 MiB left"},
	{regexp.MustCompile(`\d+ MiB more`), "222 MiB more"},
	{regexp.MustCompile(`/tmp/\S*?/([a-z.]+\.(yaml|db))`), "$1"},
}

// plain is a text without what differs from run to run.
func plain(text string) string {
	text = flat(text)
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.as)
	}
	return text
}
