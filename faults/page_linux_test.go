package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"gobridge/operate"
)

const pagePath = "../docs/faults.md"

// row is what the page says of a fault.
type row struct {
	fault, state, overview, explain, alert string
	commands                               []string
}

// overviewText is what the overview says: the text of a finding, with its steps.
func overviewText(f *operate.Finding) string {
	out := f.Text
	for _, s := range f.Steps {
		out += " → " + s.Text
		if len(s.Command) > 0 {
			out += " `" + strings.Join(s.Command, " ") + "`"
		}
	}
	return out
}

func (r row) String() string {
	commands := make([]string, len(r.commands))
	for i, c := range r.commands {
		commands[i] = "`" + c + "`"
	}
	if len(commands) == 0 {
		commands = []string{"none: it goes on by itself"}
	}
	cells := []string{
		r.fault, "**" + strings.ToUpper(r.state) + "** " + plain(r.overview), plain(r.explain),
		fmt.Sprintf("[%s](runbooks/%s.md)", r.alert, r.alert), strings.Join(commands, ", then "),
	}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// page is docs/faults.md.
type page struct {
	head string
	mu   sync.Mutex
	rows []string // as they are in the file, until they are found
}

// newPage reads the page. A row that is not there is empty.
func newPage(t *testing.T, faults []fault) *page {
	t.Helper()
	text, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	const rule = "| --- | --- | --- | --- | --- |\n"
	head, table, found := strings.Cut(string(text), rule)
	if !found {
		t.Fatalf("%s has no table", pagePath)
	}
	p := &page{head: head + rule, rows: make([]string, len(faults))}
	lines := strings.Split(table, "\n")
	for i, f := range faults {
		if at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "| "+f.name+" |") }); at >= 0 {
			p.rows[i] = lines[at]
		}
	}
	if !*update && len(lines) != len(faults)+1 {
		t.Errorf("%s has %d rows for %d faults", pagePath, len(lines)-1, len(faults))
	}
	return p
}

// row says what was found of a fault.
func (p *page) row(t *testing.T, i int, found row) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := found.String(); !*update && got != p.rows[i] {
		t.Errorf("%s says\n%s\nand it is\n%s\n(go test ./faults -run Faults -update writes it)", pagePath, p.rows[i], got)
	} else {
		p.rows[i] = got
	}
}

// finish writes the page if that is asked for. What could not be found stays.
func (p *page) finish(t *testing.T) {
	t.Helper()
	if !*update {
		return
	}
	if err := os.WriteFile(pagePath, []byte(p.head+strings.Join(p.rows, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // a page for everybody
		t.Fatal(err)
	}
}
