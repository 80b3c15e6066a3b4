package protocol

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables and traces of docs/protocol.md anew")

const document = "../docs/protocol.md"

// big says that the big setups are explored as well (make model).
var big = os.Getenv("MODEL") == "big"

func TestNothingGoesWrong(t *testing.T) {
	var happened [lastKind]bool
	table := prove(t, proofs, &happened)
	for k := range happened {
		if k := kind(k); !raced && k != 0 && k != lastProgress && !happened[k] {
			t.Errorf("step %d has not happened in any setup: something in the model is never reached", k)
		}
	}
	check(t, "states", table)
}

func TestNothingGoesWrongInBigSetups(t *testing.T) {
	if !big {
		t.Skip("takes minutes and most of a gigabyte: make model")
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(900 << 20))
	var happened [lastKind]bool
	check(t, "big", prove(t, bigProofs, &happened))
}

// prove explores setups in which nothing may go wrong and returns a table of
// them. It notes what happened in any.
func prove(t *testing.T, setups []Setup, happened *[lastKind]bool) string {
	var table strings.Builder
	table.WriteString("| store | setup | keys | calls | limit, chunk | faults | besides | states | depth |\n")
	table.WriteString("| --- | --- | --- | --- | --- | --- | --- | ---: | ---: |\n")
	for _, setup := range setups {
		if raced {
			setup.Faults = 0
		}
		w := newWorld(setup)
		r := w.explore()
		t.Logf("%s, %s: %d states, depth %d", setup.Store, setup.Name, r.States, r.Depth)
		for k := range happened {
			happened[k] = happened[k] || w.seen[k]
		}
		if r.Failure != "" || !r.Complete {
			t.Errorf("%s, %s: %s (%d states, complete %v)\n%s", setup.Store, setup.Name, r.Failure, r.States, r.Complete, numbered(r.Trace))
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %d, %d | %d | %s | %d | %d |\n", setup.Store, setup.Name, setup.Keys,
			strings.Join(setup.Calls, " + "), w.setup.Limit, w.setup.Chunk, setup.Faults, besides(setup), r.States, r.Depth)
	}
	return table.String()
}

func besides(setup Setup) string {
	var out []string
	for _, n := range []struct {
		count int
		what  string
	}{{setup.Dead, "dead at first"}, {setup.Redrives, "redrives"}, {setup.Renewals, "renewals"}} {
		if n.count > 0 {
			out = append(out, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if setup.FastClock {
		out = append(out, "a fast clock")
	}
	if setup.Of&StoppedClock != 0 {
		out = append(out, "a clock that stops")
	}
	return strings.Join(out, ", ")
}

func TestEachRuleIsNeeded(t *testing.T) {
	var text strings.Builder
	for _, c := range needed {
		t.Run(fmt.Sprintf("%s/%s", c.Without, c.Store), func(t *testing.T) {
			r := Explore(c.Setup)
			if !strings.HasPrefix(r.Failure, c.failure+":") {
				t.Fatalf("without %q the failure is %q after %d states; want one of kind %q", c.Without, r.Failure, r.States, c.failure)
			}
			t.Logf("without %s: %s\n%s", c.Without, r.Failure, numbered(r.Trace))
			fmt.Fprintf(&text, "### Without: %s (%s store)\n\nKeys `%s`, calls %s. After %d states: **%s.**\n\n```\n%s```\n\n",
				c.Without, c.Store, c.Keys, strings.Join(c.Calls, " + "), r.States, r.Failure, numbered(r.Trace))

			c.Without = NoRule
			if r := Explore(c.Setup); r.Failure != "" || !r.Complete {
				t.Errorf("with all rules: %s\n%s", r.Failure, numbered(r.Trace))
			}
		})
	}
	if !t.Failed() {
		check(t, "traces", text.String())
	}
}

func numbered(trace []string) string {
	var out strings.Builder
	for i, line := range trace {
		fmt.Fprintf(&out, "%2d  %s\n", i+1, line)
	}
	return out.String()
}

// check compares a part of the document with what was found, or writes it.
func check(t *testing.T, part, found string) {
	t.Helper()
	if raced || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // only some were explored
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	from, to := "<!-- "+part+" -->\n", "<!-- end of "+part+" -->\n"
	head, rest, ok := strings.Cut(string(text), from)
	old, tail, both := strings.Cut(rest, to)
	switch {
	case !ok || !both:
		t.Fatalf("%s has no part between %q and %q", document, from, to)
	case strings.TrimSpace(old) == strings.TrimSpace(found):
	case *update:
		if err := os.WriteFile(document, []byte(head+from+found+to+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not say what was found (%s); write it with: go test ./protocol -update", document, part)
	}
}

// Where every owner stops in time, the fence check is a second line of defence:
// what a late claim brings is not sent.
func TestFenceCheckIsForStoppedClocks(t *testing.T) {
	for _, setup := range []Setup{
		{Without: FenceCheck, Keys: "aaa", Calls: []string{"AB", "C"}, Faults: 2},
		{Without: FenceCheck, Store: Scanned, Keys: "aa", Calls: []string{"AB"}, Faults: 2},
	} {
		if r := Explore(setup); r.Failure != "" || !r.Complete {
			t.Errorf("%s: %s\n%s", setup.Store, r.Failure, numbered(r.Trace))
		}
	}
}
