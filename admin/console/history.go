package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"gobridge/operate"
)

const (
	// sampleEvery and maxSamples are what charts show: the last ten minutes.
	sampleEvery = 5 * time.Second
	maxSamples  = 120
	// maxSeries bounds the bindings whose history is kept.
	maxSeries = 500
	// rateOver is over how long a rate is counted, if it is known for that long.
	rateOver = 30 * time.Second
	// maxGap is how long nobody may have looked for a line to go on.
	maxGap = 4 * sampleEvery
)

// history is what was seen lately, while somebody looked; the zero value is empty. It
// is safe for concurrent use.
type history struct {
	mu   sync.Mutex
	of   map[string]*series // by binding; all of them under ""
	last time.Time
}

// sample is what was seen at a time.
type sample struct {
	at      time.Time
	stored  int64 // ever
	waiting int64 // pending and claimed
	held    int64 // and dead
}

// series are samples in the order of time, and the newest look, which may be nearer
// than the next sample.
type series struct {
	samples []sample
	newest  sample
}

// add takes what a look has seen, once.
func (h *history) add(status *operate.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !status.At.After(h.last) {
		return
	}
	h.last = status.At
	if h.of == nil {
		h.of = map[string]*series{}
	}
	all := sample{at: status.At}
	seen := map[string]bool{"": true}
	for i := range status.Bindings {
		b := &status.Bindings[i]
		one := sample{status.At, b.Stored, b.Pending + b.Claimed, b.Pending + b.Claimed + b.Dead}
		all.stored += one.stored
		all.waiting += one.waiting
		all.held += one.held
		if name := b.Route + "/" + b.Binding; i < maxSeries {
			seen[name] = true
			h.put(name, one)
		}
	}
	h.put("", all)
	for name := range h.of {
		if !seen[name] {
			delete(h.of, name)
		}
	}
}

func (h *history) put(name string, one sample) {
	s := h.of[name]
	if s == nil {
		s = &series{}
		h.of[name] = s
	}
	if one.stored < s.newest.stored {
		s.samples = nil // counted anew: restored, or over another number of partitions
	}
	s.newest = one
	if n := len(s.samples); n == 0 || one.at.Sub(s.samples[n-1].at) >= sampleEvery {
		s.samples = append(s.samples, one)
	}
	if extra := len(s.samples) - maxSamples; extra > 0 {
		s.samples = append(s.samples[:0], s.samples[extra:]...)
	}
}

// between returns how many a second came in and went out between two samples. What
// is dead has not gone out.
func between(from, to sample) (in, out float64) {
	seconds := to.at.Sub(from.at).Seconds()
	came := to.stored - from.stored
	went := max(0, came-(to.held-from.held))
	return float64(came) / seconds, float64(went) / seconds
}

// rates says how much comes in and goes out, "…" while that is not known yet.
func (h *history) rates(name string) (in, out string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of[name]
	if s == nil {
		return "…", "…"
	}
	for _, from := range s.samples {
		if since := s.newest.at.Sub(from.at); since <= rateOver && since >= time.Second {
			came, went := between(from, s.newest)
			return rateText(came), rateText(went)
		}
	}
	return "…", "…"
}

// Size of a chart, in its own units.
const (
	chartWidth  = 240
	chartHeight = 40
)

// chart is a picture of the last ten minutes, and how high it is. Its zero value is
// that of too short a history.
type chart struct {
	Picture template.HTML
	Top     string
}

// depth draws how much waited.
func (h *history) depth(name string) chart {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of[name]
	if s == nil || len(s.samples) < 2 {
		return chart{}
	}
	values := make([]float64, len(s.samples))
	for i, one := range s.samples {
		values[i] = float64(one.waiting)
	}
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	label := fmt.Sprintf("waiting: %s, and %s %s before", operate.Thousands(last.waiting), operate.Thousands(first.waiting), operate.Span(last.at.Sub(first.at)))
	return chart{draw(label, s.samples, line{"depth", values}), "at most " + operate.Thousands(int64(slices.Max(values)))}
}

// flow draws how much came in and went out.
func (h *history) flow(name string) chart {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of[name]
	if s == nil || len(s.samples) < 3 {
		return chart{}
	}
	came, went := make([]float64, len(s.samples)-1), make([]float64, len(s.samples)-1)
	for i := range came {
		came[i], went[i] = between(s.samples[i], s.samples[i+1])
	}
	span := operate.Span(s.newest.at.Sub(s.samples[0].at))
	top := max(slices.Max(came), slices.Max(went))
	return chart{draw("messages in and out per second over the last "+span, s.samples[1:], line{"in", came}, line{"out", went}), "at most " + rateText(top)}
}

// line is a curve: a class of the style sheet, and a value for each sample.
type line struct {
	class  string
	values []float64
}

// draw makes a chart of lines over the same samples. Where nobody looked, lines
// have a gap.
func draw(label string, samples []sample, lines ...line) template.HTML {
	top := 1.0
	for _, l := range lines {
		for _, v := range l.values {
			top = max(top, v)
		}
	}
	const span = maxSamples * sampleEvery
	end := samples[len(samples)-1].at
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`,
		chartWidth, chartHeight, template.HTMLEscapeString(label))
	for _, l := range lines {
		fmt.Fprintf(&out, `<path class="%s" vector-effect="non-scaling-stroke" d="`, l.class)
		for i, v := range l.values {
			pen := "L"
			if i == 0 || samples[i].at.Sub(samples[i-1].at) > maxGap {
				pen = "M"
			}
			x := chartWidth * (1 - float64(end.Sub(samples[i].at))/float64(span))
			y := 1 + (chartHeight-2)*(1-v/top)
			fmt.Fprintf(&out, "%s%.1f %.1f", pen, max(0, x), y)
		}
		out.WriteString(`"/>`)
	}
	out.WriteString("</svg>")
	return template.HTML(out.String()) //nolint:gosec // numbers, and a label that is escaped
}
