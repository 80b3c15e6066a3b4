package faults

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// scrapeEvery is how far apart scrapes are for the rules. Their clock is not the
// wall's: each scrape stands for another minute.
const scrapeEvery = time.Minute

// rule is an alert of the file that is delivered.
type rule struct {
	name  string
	holds query
	pause time.Duration // "for"

	since map[string]time.Duration // by labels, from when on it holds
}

// readRules reads ops/prometheus/alerts.yml.
func readRules(t testing.TB) []*rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert string `yaml:"alert"`
				Expr  string `yaml:"expr"`
				For   string `yaml:"for"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, "../ops/prometheus/alerts.yml", &file)
	var out []*rule
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			q, err := parse(r.Expr)
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			pause, err := time.ParseDuration(r.For)
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			out = append(out, &rule{r.Alert, q, pause, map[string]time.Duration{}})
		}
	}
	return out
}

func readYAML(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// evaluate returns the labels of what fires at a time, for times that go up.
func (r *rule) evaluate(d database, at time.Duration) []string {
	now := map[string]time.Duration{}
	var fires []string
	for _, e := range r.holds(d, at) {
		key := e.labels.key()
		since, known := r.since[key]
		if !known {
			since = at
		}
		now[key] = since
		if at-since >= r.pause {
			fires = append(fires, key)
		}
	}
	r.since = now
	return fires
}

// prometheus scrapes bridges and evaluates the rules.
type prometheus struct {
	rig     *rig
	targets []string
	rules   []*rule
	data    database
	now     time.Duration
	seen    map[string]map[string]labels // by target, the series of its last scrape
}

func newPrometheus(r *rig, targets ...string) *prometheus {
	r.Helper()
	return &prometheus{rig: r, targets: targets, rules: readRules(r.TB), data: database{}, seen: map[string]map[string]labels{}}
}

// scrape lets a minute pass, and returns the alerts that fire.
func (p *prometheus) scrape() []string {
	p.rig.Helper()
	p.now += scrapeEvery
	for _, target := range p.targets {
		status, text := p.rig.get(target, "/metrics")
		up, now := 0.0, map[string]labels{}
		if status == 200 {
			up = 1
			for l, v := range samples(p.rig.TB, text) {
				(*l)["instance"], (*l)["job"] = target, "gobridge"
				p.data.add(*l, p.now, v)
				now[(*l)["__name__"]+l.key()] = *l
			}
		}
		for key, l := range p.seen[target] {
			if now[key] == nil {
				p.data.add(l, p.now, math.NaN())
			}
		}
		p.seen[target] = now
		p.data.add(labels{"__name__": "up", "instance": target, "job": "gobridge"}, p.now, up)
	}
	var fires []string
	for _, r := range p.rules {
		if len(r.evaluate(p.data, p.now)) > 0 {
			fires = append(fires, r.name)
		}
	}
	return fires
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$`)
	labelPart  = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)
)

// samples yields the samples of a scrape that are gobridge's.
func samples(t testing.TB, text string) func(yield func(*labels, float64) bool) {
	return func(yield func(*labels, float64) bool) {
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "gobridge_") {
				continue
			}
			found := sampleLine.FindStringSubmatch(lines.Text())
			if found == nil {
				t.Fatalf("not a sample: %q", lines.Text())
			}
			v, err := strconv.ParseFloat(found[3], 64)
			if err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			l := labels{"__name__": found[1]}
			for _, one := range labelPart.FindAllStringSubmatch(found[2], -1) {
				l[one[1]] = one[2]
			}
			if !yield(&l, v) {
				return
			}
		}
	}
}

// quiet lets some minutes pass in which nothing may ring.
func (p *prometheus) quiet() {
	p.rig.Helper()
	for range 3 {
		if fires := p.scrape(); len(fires) > 0 {
			p.rig.Fatalf("before the fault %v ring", fires)
		}
	}
}

// until lets minutes pass, with something happening in each, until the alerts that
// fire are as wanted.
func (p *prometheus) until(what string, wanted func(fires []string) bool, during func()) {
	p.rig.Helper()
	var fires []string
	deadline := time.Now().Add(patience)
	for ok := false; !ok; ok = wanted(fires) {
		if time.Now().After(deadline) {
			p.rig.Fatalf("%s: %v ring", what, fires)
		}
		if during != nil {
			during()
		}
		time.Sleep(50 * time.Millisecond) // a reading of the gauges is good for a second
		fires = p.scrape()
	}
}

// TestRulesAsPromtoolSeesThem runs the tests that promtool runs: what is evaluated here
// is what Prometheus would.
func TestRulesAsPromtoolSeesThem(t *testing.T) {
	var file struct {
		Tests []struct {
			Name  string `yaml:"name"`
			Input []struct {
				Series string `yaml:"series"`
				Values string `yaml:"values"`
			} `yaml:"input_series"`
			Tests []struct {
				Time   string `yaml:"eval_time"`
				Alert  string `yaml:"alertname"`
				Alerts []struct {
					Labels labels `yaml:"exp_labels"`
				} `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	readYAML(t, "../ops/prometheus/alerts_test.yml", &file)
	if len(file.Tests) < 16 {
		t.Fatalf("only %d tests are found", len(file.Tests))
	}
	for _, tt := range file.Tests {
		t.Run(tt.Name, func(t *testing.T) {
			data := database{}
			for _, in := range tt.Input {
				name, rest, _ := strings.Cut(in.Series, "{")
				l := labels{"__name__": name}
				for _, one := range labelPart.FindAllStringSubmatch(rest, -1) {
					l[one[1]] = one[2]
				}
				for i, v := range expand(t, in.Values) {
					data.add(l, time.Duration(i)*scrapeEvery, v)
				}
			}
			for _, want := range tt.Tests {
				end, err := time.ParseDuration(want.Time)
				if err != nil {
					t.Fatal(err)
				}
				rules := readRules(t)
				r := rules[slices.IndexFunc(rules, func(r *rule) bool { return r.name == want.Alert })]
				var fires []string
				for at := time.Duration(0); at <= end; at += scrapeEvery {
					fires = r.evaluate(data, at)
				}
				var expected []string
				for _, a := range want.Alerts {
					l := maps.Clone(a.Labels)
					delete(l, "severity")
					expected = append(expected, l.key())
				}
				slices.Sort(fires)
				slices.Sort(expected)
				if !slices.Equal(fires, expected) {
					t.Errorf("at %s %s fires for %q, want %q", want.Time, want.Alert, fires, expected)
				}
			}
		})
	}
}

// expand reads promtool's short form of values: "1 0x2 5+10x3" is 1 0 0 0 5 15 25 35.
func expand(t *testing.T, text string) []float64 {
	t.Helper()
	form := regexp.MustCompile(`^(-?[0-9.]+)(?:([+-][0-9.]+))?(?:x([0-9]+))?$`)
	var out []float64
	for _, part := range strings.Fields(text) {
		m := form.FindStringSubmatch(part)
		if m == nil {
			t.Fatalf("no values: %q", part)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		step, times := 0.0, 0
		if m[2] != "" && err == nil {
			step, err = strconv.ParseFloat(m[2], 64)
		}
		if m[3] != "" && err == nil {
			times, err = strconv.Atoi(m[3])
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%q: %w", part, err))
		}
		for i := range times + 1 {
			out = append(out, v+step*float64(i))
		}
	}
	return out
}
