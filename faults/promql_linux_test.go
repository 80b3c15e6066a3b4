package faults

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This is as much of PromQL as the alert rules use, by Prometheus' documentation
// ("Querying Prometheus", "Operators", "Query functions"). TestRulesAsPromtoolSeesThem
// holds it against the tests that promtool runs.

// labels are those of a series, its name among them under "__name__".
type labels map[string]string

// key makes labels comparable, those named or all but the name.
func (l labels) key(only ...string) string {
	names := only
	if only == nil {
		names = slices.Sorted(maps.Keys(l))
	}
	var b strings.Builder
	for _, n := range names {
		if v := l[n]; v != "" && n != "__name__" {
			fmt.Fprintf(&b, "%s=%q,", n, v)
		}
	}
	return b.String()
}

func (l labels) only(names []string) labels {
	out := labels{}
	for _, n := range names {
		if v := l[n]; v != "" {
			out[n] = v
		}
	}
	return out
}

func (l labels) nameless() labels {
	out := maps.Clone(l)
	delete(out, "__name__")
	return out
}

// point is a sample; NaN marks that the series was gone.
type point struct {
	at time.Duration
	v  float64
}

// database has series by their names and labels.
type database map[string]*series

type series struct {
	labels labels
	points []point
}

func (d database) add(l labels, at time.Duration, v float64) {
	key := l["__name__"] + l.key()
	if d[key] == nil {
		d[key] = &series{labels: l}
	}
	d[key].points = append(d[key].points, point{at, v})
}

// element is one of a vector.
type element struct {
	labels labels
	v      float64
}

// query is an expression that can be evaluated at a time.
type query func(d database, at time.Duration) []element

// lookback is how old a sample may be that still counts (--query.lookback-delta).
const lookback = 5 * time.Minute

var lexeme = regexp.MustCompile(`\s*(\d+(?:\.\d+)?[smhd]?|[a-zA-Z_:][a-zA-Z0-9_:]*|"[^"]*"|==|!=|>=|<=|=~|!~|[-+*/(){}\[\],<>=])`)

// parser reads an expression by precedence: or; and, unless; comparisons; times.
type parser struct {
	tokens []string
	err    error
}

// parse reads an expression.
func parse(text string) (query, error) {
	p := &parser{}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		m := lexeme.FindStringSubmatch(rest)
		if m == nil || !strings.HasPrefix(rest, m[1]) {
			return nil, fmt.Errorf("what is %q?", rest)
		}
		p.tokens = append(p.tokens, m[1])
		rest = rest[len(m[1]):]
	}
	q := p.binary(0)
	if p.err == nil && len(p.tokens) > 0 {
		p.err = fmt.Errorf("what is %q?", strings.Join(p.tokens, " "))
	}
	return q, p.err
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) accept(t string) bool {
	if p.peek() != t {
		return false
	}
	p.next()
	return true
}

func (p *parser) want(t string) {
	if !p.accept(t) && p.err == nil {
		p.err = fmt.Errorf("%q stands where %q should", p.peek(), t)
	}
}

// operators by precedence, lowest first.
var operators = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", ">", "<", ">=", "<="}, {"/", "*"}}

func (p *parser) binary(level int) query {
	if level == len(operators) {
		return p.primary()
	}
	left := p.binary(level + 1)
	for slices.Contains(operators[level], p.peek()) {
		op := p.next()
		var on []string
		if p.accept("on") {
			on = p.names()
		}
		left = combine(op, on, left, p.binary(level+1))
	}
	return left
}

// names reads labels in brackets.
func (p *parser) names() []string {
	out := []string{}
	p.want("(")
	for p.err == nil && !p.accept(")") {
		out = append(out, p.next())
		p.accept(",")
	}
	return out
}

func (p *parser) primary() query {
	t := p.next()
	switch t {
	case "(":
		q := p.binary(0)
		p.want(")")
		return q
	case "max", "sum":
		p.want("by")
		by := p.names()
		p.want("(")
		q := p.binary(0)
		p.want(")")
		return aggregate(t, by, q)
	case "rate", "increase", "delta":
		p.want("(")
		match := p.selector(p.next())
		p.want("[")
		window, err := time.ParseDuration(p.next())
		if err != nil && p.err == nil {
			p.err = err
		}
		p.want("]")
		p.want(")")
		return over(t, match, window)
	}
	if n, err := strconv.ParseFloat(t, 64); err == nil {
		return func(database, time.Duration) []element { return []element{{v: n}} }
	}
	return instant(p.selector(t))
}

// selector reads what stands in braces behind a name.
func (p *parser) selector(name string) func(labels) bool {
	tests := []func(labels) bool{func(l labels) bool { return l["__name__"] == name }}
	if p.accept("{") {
		for p.err == nil && !p.accept("}") {
			label, op, value := p.next(), p.next(), strings.Trim(p.next(), `"`)
			p.accept(",")
			switch op {
			case "=":
				tests = append(tests, func(l labels) bool { return l[label] == value })
			case "=~":
				pattern := regexp.MustCompile("^(?:" + value + ")$")
				tests = append(tests, func(l labels) bool { return pattern.MatchString(l[label]) })
			default:
				p.err = fmt.Errorf("no rule uses %s", op)
			}
		}
	}
	return func(l labels) bool {
		return !slices.ContainsFunc(tests, func(t func(labels) bool) bool { return !t(l) })
	}
}

// instant is the newest sample of each series.
func instant(match func(labels) bool) query {
	return func(d database, at time.Duration) []element {
		var out []element
		for _, s := range d {
			if !match(s.labels) {
				continue
			}
			for _, p := range slices.Backward(s.points) {
				if p.at > at {
					continue
				}
				if at-p.at < lookback && !math.IsNaN(p.v) {
					out = append(out, element{s.labels, p.v})
				}
				break
			}
		}
		return out
	}
}

// over is rate, increase or delta of a window.
func over(function string, match func(labels) bool, window time.Duration) query {
	return func(d database, at time.Duration) []element {
		var out []element
		for _, s := range d {
			var in []point
			for _, p := range s.points {
				if match(s.labels) && p.at > at-window && p.at <= at && !math.IsNaN(p.v) {
					in = append(in, p)
				}
			}
			if len(in) < 2 {
				continue
			}
			v := extrapolated(in, at-window, at, function != "delta")
			if function == "rate" {
				v /= window.Seconds()
			}
			out = append(out, element{s.labels.nameless(), v})
		}
		return out
	}
}

// extrapolated is what a series grew by from begin to end, judging by its samples in
// between, as Prometheus judges: as if it went on so to both ends, unless an end is
// further away than samples are from each other, or a counter would fall below zero.
func extrapolated(in []point, begin, end time.Duration, counter bool) float64 {
	first, last := in[0], in[len(in)-1]
	grown := last.v - first.v
	for i := 1; counter && i < len(in); i++ {
		if in[i].v < in[i-1].v {
			grown += in[i-1].v // it began anew
		}
	}
	sampled := (last.at - first.at).Seconds()
	between := sampled / float64(len(in)-1)
	start, tail := (first.at - begin).Seconds(), (end - last.at).Seconds()
	if start > between*1.1 {
		start = between / 2
	}
	if counter && grown > 0 {
		start = min(start, sampled*first.v/grown)
	}
	if tail > between*1.1 {
		tail = between / 2
	}
	return grown * (sampled + start + tail) / sampled
}

func aggregate(function string, by []string, q query) query {
	return func(d database, at time.Duration) []element {
		groups := map[string]*element{}
		for _, e := range q(d, at) {
			key := e.labels.key(by...)
			g := groups[key]
			switch {
			case g == nil:
				groups[key] = &element{e.labels.only(by), e.v}
			case function == "sum":
				g.v += e.v
			default:
				g.v = max(g.v, e.v)
			}
		}
		var out []element
		for _, g := range groups {
			out = append(out, *g)
		}
		return out
	}
}

// combine joins two vectors, on labels or on all of them. A number is a vector of one
// element without labels.
func combine(op string, on []string, left, right query) query {
	key := func(l labels) string {
		if on == nil {
			return l.key()
		}
		if len(on) == 0 {
			return ""
		}
		return l.key(on...)
	}
	return func(d database, at time.Duration) []element {
		a, b := left(d, at), right(d, at)
		number := len(b) == 1 && b[0].labels == nil
		others := map[string]element{}
		for _, e := range b {
			others[key(e.labels)] = e
		}
		var out []element
		mine := map[string]bool{}
		for _, e := range a {
			mine[key(e.labels)] = true
			other, there := others[key(e.labels)]
			if number {
				other, there = b[0], true
			}
			if one, ok := pair(op, e, other, there); ok {
				out = append(out, one)
			}
		}
		for _, e := range b {
			if op == "or" && !mine[key(e.labels)] {
				out = append(out, e)
			}
		}
		return out
	}
}

// pair is what an element comes to with its partner, if it has one.
func pair(op string, e, other element, there bool) (element, bool) {
	switch op {
	case "or":
		return e, true
	case "and":
		return e, there
	case "unless":
		return e, !there
	case "/":
		return element{e.labels.nameless(), e.v / other.v}, there
	case "*":
		return element{e.labels.nameless(), e.v * other.v}, there
	}
	holds := map[string]bool{
		"==": e.v == other.v, "!=": e.v != other.v, ">": e.v > other.v, "<": e.v < other.v, ">=": e.v >= other.v, "<=": e.v <= other.v,
	}
	return e, there && holds[op]
}
