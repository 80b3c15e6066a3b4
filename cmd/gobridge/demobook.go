package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"gobridge/operate"
)

// demoMessage is the N-th message of a key.
type demoMessage struct {
	Key int `json:"key"`
	N   int `json:"n"`
}

func (m demoMessage) id() string { return fmt.Sprintf("%d-%d", m.Key, m.N) }

func (m demoMessage) body() io.Reader {
	text, _ := json.Marshal(m) // never fails
	return bytes.NewReader(text)
}

func readDemoMessage(r io.Reader) (m demoMessage, err error) {
	err = json.NewDecoder(r).Decode(&m)
	return m, err
}

// demoBook keeps what was accepted and what arrived.
type demoBook struct {
	mu         sync.Mutex
	took       map[demoMessage]time.Time // accepted
	came       map[demoMessage]time.Time // arrived for the first time
	next       map[int]int               // of each key: the number that is due
	duplicates int
	disorder   int
}

func newDemoBook() *demoBook {
	return &demoBook{took: map[demoMessage]time.Time{}, came: map[demoMessage]time.Time{}, next: map[int]int{}}
}

func (b *demoBook) accepted(m demoMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.took[m] = time.Now()
}

// arrived takes a message in. The first arrivals of a key must have its numbers
// without a gap.
func (b *demoBook) arrived(m demoMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, before := b.came[m]; before {
		b.duplicates++
		return
	}
	b.came[m] = time.Now()
	if m.N != b.next[m.Key] {
		b.disorder++
	}
	b.next[m.Key] = max(b.next[m.Key], m.N+1)
}

// missing counts what was accepted and has not arrived.
func (b *demoBook) missing() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for m := range b.took {
		if _, there := b.came[m]; !there {
			n++
		}
	}
	return n
}

// demoSum is the result of the demo.
type demoSum struct {
	accepted, delivered, duplicates, lost, disorder int

	calm, all []time.Duration // from acceptance to arrival, ascending
}

// sum counts; calm is until when nothing went wrong.
func (b *demoBook) sum(calm time.Time) demoSum {
	s := demoSum{lost: b.missing()}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.accepted, s.delivered, s.duplicates, s.disorder = len(b.took), len(b.took)-s.lost, b.duplicates, b.disorder
	for m, at := range b.took {
		there, ok := b.came[m]
		if !ok {
			continue
		}
		took := max(0, there.Sub(at)) // it may arrive before its producer has the answer
		s.all = append(s.all, took)
		if there.Before(calm) {
			s.calm = append(s.calm, took)
		}
	}
	slices.Sort(s.all)
	slices.Sort(s.calm)
	return s
}

func (s *demoSum) write(w io.Writer) error {
	var out bytes.Buffer
	row := func(name, value, note string) { fmt.Fprintf(&out, "%-14s %12s   %s\n", name, value, note) }
	out.WriteString("\n")
	row("accepted", operate.Thousands(s.accepted), "answered with 202: on disk")
	row("delivered", operate.Thousands(s.delivered), "arrived at the destination")
	row("duplicates", operate.Thousands(s.duplicates), "arrived once more, their answers having been lost")
	row("lost", operate.Thousands(s.lost), "accepted, and never arrived")
	row("out of order", operate.Thousands(s.disorder), "arrived before an older one of their key")
	row("p50, p99", percentile(s.calm, 50)+", "+percentile(s.calm, 99), "from accepted to arrived, until things went wrong")
	row("p50, p99", percentile(s.all, 50)+", "+percentile(s.all, 99), "the same, all in all")
	_, err := w.Write(out.Bytes())
	return err
}

// percentile returns a percentile of what is sorted.
func percentile(sorted []time.Duration, p int) string {
	if len(sorted) == 0 {
		return "-"
	}
	d := sorted[min(len(sorted)-1, len(sorted)*p/100)]
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
