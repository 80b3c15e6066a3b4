package torture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// story builds a history by hand.
type story struct {
	*history
	clock time.Duration
}

func tell() *story { return &story{history: newHistory()} }

func (s *story) tick(e event) *story {
	s.clock += time.Millisecond
	e.at = s.clock
	s.add(e)
	return s
}

func original(id, key string, seq int) event { return event{id: id, key: key, seq: seq, digest: 7} }

func (s *story) accept(id, key string, seq int) *story {
	e := original(id, key, seq)
	e.kind = sent
	s.tick(e)
	e.kind = acked
	return s.tick(e)
}

func (s *story) arrive(id, key string, seq, attempt int, taken bool) *story {
	e := original(id, key, seq)
	e.kind, e.binding, e.attempt, e.taken = arrived, "hook", attempt, taken
	return s.tick(e)
}

func TestCheckerFindsWhatIsWrong(t *testing.T) {
	both := func() *story { return tell().accept("a1", "a", 1).accept("a2", "a", 2) }
	for _, c := range []struct {
		name  string
		story *story
		want  []rule
	}{
		{"all well", both().arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, true), nil},
		{"a message refused once, then taken",
			both().arrive("a1", "a", 1, 1, false).arrive("a1", "a", 1, 2, true).arrive("a2", "a", 2, 1, true), nil},
		{"an acknowledged message that never arrived", both().arrive("a1", "a", 1, 1, true), []rule{ruleLoss}},
		{"an acknowledged message that only ever was refused",
			both().arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, false), []rule{ruleLoss}},
		{"a key out of order",
			both().arrive("a2", "a", 2, 1, true).arrive("a1", "a", 1, 1, true), []rule{ruleOrder, ruleOrder}},
		{"a tail tried before its head was taken",
			both().arrive("a1", "a", 1, 1, false).arrive("a2", "a", 2, 1, true).arrive("a1", "a", 1, 2, true),
			[]rule{ruleOrder}},
		{"other keys in any order",
			tell().accept("a1", "a", 1).accept("b1", "b", 1).arrive("b1", "b", 1, 1, true).arrive("a1", "a", 1, 1, true), nil},
		{"no key, any order",
			tell().accept("x", "", 1).accept("y", "", 2).arrive("y", "", 2, 1, true).arrive("x", "", 1, 1, true), nil},
		{"a repeat with its attempt number",
			both().arrive("a1", "a", 1, 1, true).arrive("a1", "a", 1, 2, true).arrive("a2", "a", 2, 1, true), nil},
		{"a late repeat with its attempt number",
			both().arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, true).arrive("a1", "a", 1, 3, true), nil},
		{"a first attempt that arrives behind the second",
			both().arrive("a1", "a", 1, 2, true).arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, true), nil},
		{"a second attempt that comes twice",
			both().arrive("a1", "a", 1, 2, true).arrive("a1", "a", 1, 2, true).arrive("a2", "a", 2, 1, true),
			[]rule{ruleDuplicate}},
		{"a repeat that says it is the first",
			both().arrive("a1", "a", 1, 1, true).arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, true),
			[]rule{ruleDuplicate}},
		{"a repeat without any number",
			both().arrive("a1", "a", 1, 1, true).arrive("a1", "a", 1, 0, true).arrive("a2", "a", 2, 1, true),
			[]rule{ruleDuplicate}},
		{"a message nobody sent", both().arrive("a1", "a", 1, 1, true).arrive("a2", "a", 2, 1, true).
			arrive("z", "a", 3, 1, true), []rule{ruleInvented}},
		{"a message under another key", tell().accept("a1", "a", 1).arrive("a1", "b", 1, 1, true).
			arrive("a1", "a", 1, 2, true), []rule{ruleInvented}},
		{"one that was sent and never answered may arrive",
			tell().tick(event{kind: sent, id: "a1", key: "a", seq: 1, digest: 7}).arrive("a1", "a", 1, 1, true), nil},
	} {
		got := c.story.check("hook")
		if len(got) != len(c.want) {
			t.Errorf("%s: found %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i].rule != c.want[i] {
				t.Errorf("%s: found %v, want %v", c.name, got, c.want)
			}
		}
	}
}

func TestCheckerLooksAtContent(t *testing.T) {
	s := tell().accept("a1", "a", 1)
	s.tick(event{kind: arrived, binding: "hook", id: "a1", key: "a", seq: 1, digest: 8, attempt: 1, taken: true})
	if got := s.check("hook"); len(got) != 1 || got[0].rule != ruleInvented {
		t.Errorf("other content under a known ID: found %v", got)
	}
}

func TestCheckerKnowsTakeovers(t *testing.T) {
	s := tell().accept("a1", "a", 1).arrive("a1", "a", 1, 1, true).arrive("a1", "a", 1, 1, true)
	s.takeover(s.clock, s.clock)
	if got := s.check("hook"); len(got) != 0 {
		t.Errorf("a repeat within a takeover: found %v", got)
	}
	s.arrive("a1", "a", 1, 1, true)
	if got := s.check("hook"); len(got) != 1 || got[0].rule != ruleDuplicate {
		t.Errorf("a repeat after a takeover: found %v", got)
	}
}

func TestCheckerLooksAtEveryBinding(t *testing.T) {
	s := tell().accept("a1", "a", 1).arrive("a1", "a", 1, 1, true)
	got := s.check("hook", "file")
	if len(got) != 1 || got[0].rule != ruleLoss || got[0].binding != "file" {
		t.Errorf("taken by one of two bindings: found %v", got)
	}
	if n := s.missing("file"); n != 1 {
		t.Errorf("missing at file: %d, want 1", n)
	}
}

func TestTraceIsShortAndAboutTheMatter(t *testing.T) {
	s := tell()
	for i := range 1000 {
		s.accept("b"+strings.Repeat("x", i%7)+string(rune('a'+i%26)), "b", i+1)
	}
	s.accept("a1", "a", 1).accept("a2", "a", 2).arrive("a2", "a", 2, 1, true)
	found := s.check("hook")
	text := s.trace(found[0])
	if lines := strings.Count(text, "\n"); lines > traceBefore+traceAfter+1 {
		t.Errorf("the trace has %d lines", lines)
	}
	for _, want := range []string{"seq 2 of key a", "sent    a1", "taken   a2"} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "key=b") {
		t.Errorf("the trace tells of another key:\n%s", text)
	}
}

func TestReadLinesFindsWhatIsTorn(t *testing.T) {
	const good = `{"id":"a1","attempt":2,"version":3,"data":{"id":"a1","key":"a","seq":1,"pad":""}}` + "\n"
	for _, c := range []struct {
		name, text string
		events     int
		wrong      bool
	}{
		{"two lines", good + good, 2, false},
		{"nothing", "", 0, false},
		{"a last line without its end", good + good[:20], 1, true},
		{"a whole last line without its end", good + good[:len(good)-1], 1, true},
		{"a line within a line", good[:20] + good + good, 1, true},
		{"another message's payload", strings.Replace(good, `{"id":"a1"`, `{"id":"a2"`, 1), 0, true},
		{"zeros", good + "\x00\x00\n", 1, true},
	} {
		path := filepath.Join(t.TempDir(), "lines")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := readLines(path)
		if len(events) != c.events || (err != nil) != c.wrong {
			t.Errorf("%s: %d events, error %v", c.name, len(events), err)
		}
	}
	events, err := readLines(filepath.Join(t.TempDir(), "none"))
	if len(events) != 0 || err != nil {
		t.Errorf("no file: %v, %v", events, err)
	}
}
