package torture

import (
	"fmt"
	"testing"
	"time"
)

const ms = time.Millisecond

// take adds the acknowledgement of a message and its arrival at the webhook.
func (h *history) take(id, partition string, answered, came time.Duration) {
	h.add(event{at: answered, kind: acked, id: id})
	h.add(event{at: came, kind: arrived, binding: "hook", id: id, partition: partition, version: 1, taken: true})
}

func TestGaps(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(h *history)
		want time.Duration
	}{
		{"nothing", func(*history) {}, 0},
		{"one message", func(h *history) { h.take("a", "p", 10*ms, 15*ms) }, 5 * ms},
		{"silence while nothing waits", func(h *history) {
			h.take("a", "p", 10*ms, 11*ms)
			h.take("b", "p", 500*ms, 502*ms)
		}, 2 * ms},
		{"silence while one waits", func(h *history) {
			h.add(event{at: 5 * ms, kind: acked, id: "b"})
			h.take("a", "p", 10*ms, 11*ms)
			h.add(event{at: 500 * ms, kind: arrived, binding: "hook", id: "b", partition: "p", version: 2, taken: true})
		}, 489 * ms},
		{"others come meanwhile", func(h *history) {
			h.add(event{at: 5 * ms, kind: acked, id: "b"})
			h.take("a", "p", 10*ms, 200*ms)
			h.add(event{at: 300 * ms, kind: arrived, binding: "hook", id: "b", partition: "p", version: 1, taken: true})
		}, 195 * ms},
		{"another partition's arrivals are no help", func(h *history) {
			h.add(event{at: 5 * ms, kind: acked, id: "b"})
			h.take("a", "q", 100*ms, 101*ms)
			h.add(event{at: 300 * ms, kind: arrived, binding: "hook", id: "b", partition: "p", version: 1, taken: true})
		}, 295 * ms},
		{"what is refused does not count", func(h *history) {
			h.add(event{at: 5 * ms, kind: acked, id: "b"})
			h.add(event{at: 100 * ms, kind: arrived, binding: "hook", id: "b", partition: "p", version: 1})
			h.add(event{at: 300 * ms, kind: arrived, binding: "hook", id: "b", partition: "p", version: 1, taken: true})
		}, 295 * ms},
		{"before its answer", func(h *history) {
			h.add(event{at: 5 * ms, kind: arrived, binding: "hook", id: "a", partition: "p", version: 1, taken: true})
			h.add(event{at: 6 * ms, kind: acked, id: "a"})
		}, 0},
	} {
		h := newHistory()
		c.tell(h)
		if got := longest(h.gaps()); got.long() != c.want {
			t.Errorf("%s: the longest gap is %s, want %s", c.name, got, c.want)
		}
	}
}

func TestHandovers(t *testing.T) {
	r := &rig{t: t, history: newHistory(), book: &logbook{}}
	r.book.log(1*ms, 10, acquiredText("p", 1))
	r.book.log(1*ms, 20, acquiredText("q", 1))
	deliver := func(at time.Duration, partition string, version int64, id string) {
		r.history.add(event{at: 10 * ms, kind: acked, id: id})
		r.history.add(event{at: at, kind: arrived, binding: "hook", partition: partition, version: version, id: id, taken: true})
	}
	deliver(20*ms, "p", 1, "a")
	deliver(21*ms, "q", 1, "b")
	r.history.add(event{at: 100 * ms, kind: mark, note: "process 10 is told to stop"})
	r.book.log(150*ms, 20, `level=INFO msg="partition is handed over" partition=q to=vm-30-X`)
	deliver(300*ms, "p", 2, "c")
	deliver(310*ms, "p", 2, "d")
	deliver(320*ms, "q", 3, "e")
	got := r.handovers()
	if len(got) != 2 || got[0].long() != 200*ms || got[1].long() != 170*ms {
		t.Errorf("hand-overs %v; want 200 ms at p since the stop, and 170 ms at q since its owner began", got)
	}
}

// log adds a line of a process's log.
func (l *logbook) log(at time.Duration, pid int, text string) {
	l.lines = append(l.lines, line{at, pid, text})
}

func acquiredText(partition string, version int) string {
	return fmt.Sprintf(`level=INFO msg="partition acquired" partition=%s version=%d owner=vm-1-X takeover=true`, partition, version)
}

func TestLates(t *testing.T) {
	r := &rig{t: t, history: newHistory(), book: &logbook{}}
	r.book.log(1*ms, 10, acquiredText("p", 1))
	r.book.log(100*ms, 20, acquiredText("p", 2))
	r.book.log(1*ms, 10, acquiredText("q", 1))
	arrive := func(at time.Duration, partition string, version int64, id string) {
		r.history.add(event{at: at, kind: arrived, binding: "hook", partition: partition, version: version, id: id})
	}
	arrive(50*ms, "p", 1, "a")
	arrive(110*ms, "p", 2, "b")
	arrive(120*ms, "q", 1, "c") // nobody has taken that one over
	arrive(130*ms, "p", 1, "d")
	r.history.add(event{at: 200 * ms, kind: mark, note: "process 10 goes on"})
	arrive(203*ms, "p", 1, "e")
	got := r.lates()
	if len(got) != 2 || got[0].id != "d" || got[0].behind != 20*ms || got[1].id != "e" || got[1].behind != 3*ms ||
		got[0].by != 10 || got[1].by != 10 {
		t.Errorf("late are %+v; want d 20 ms behind, and e 3 ms after process 10 went on", got)
	}
}

func TestOwnersAreReadFromTheLog(t *testing.T) {
	l := &logbook{}
	l.log(1*ms, 10, acquiredText("p", 1))
	l.log(2*ms, 10, acquiredText("q", 1))
	l.log(3*ms, 10, acquiredText("s", 1))
	l.log(4*ms, 10, `level=INFO msg="partition released" partition=p version=1`)
	l.log(5*ms, 20, acquiredText("p", 2))
	l.log(6*ms, 20, acquiredText("q", 2))
	l.log(7*ms, 10, `level=WARN msg="partition lost" partition=q version=1 error="taken over"`)
	l.log(8*ms, 10, `level=INFO msg="partition released" partition=s version=1`)
	owners := l.owners()
	if len(owners) != 2 || owners["p"].pid != 20 || owners["q"].pid != 20 {
		t.Errorf("owners are %v, want process 20 for p and q, and nobody for s", owners)
	}
	if n := len(l.tenancies()); n != 5 {
		t.Errorf("%d tenancies, want 5", n)
	}
}
