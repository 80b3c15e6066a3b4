//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/sqlite"
	"gobridge/telemetry"
)

// alertNight is a night on which an alert rings: a bridge in that state, with an
// admin listener.
type alertNight struct{ *night }

// newAlertNight makes one. Pairs of texts are replaced in its configuration.
func newAlertNight(t *testing.T, route, binding string, replace ...string) *alertNight {
	t.Helper()
	n := &alertNight{newNight(t, "", "", "")}
	n.admin = freePort(t)
	text := fmt.Sprintf(nightConfig, "", route, n.dest.server.URL, binding) +
		fmt.Sprintf("admin: { listen: %q, tokens: { read: %q, operate: %q } }\n", n.admin, readToken, nightToken)
	n.configure(strings.NewReplacer(replace...).Replace(text))
	return n
}

// stuck starts the bridge with a destination that answers with a status, and posts a
// message, after which the scrape has the line.
func (n *alertNight) stuck(status int, line string) (*night, int) {
	n.Helper()
	n.dest.answers(status)
	n.start()
	n.post(202, "m-1", "cust-7781", body)
	n.shows(line)
	return n.night, 0
}

// shows waits until the scrape has a line.
func (n *alertNight) shows(line string) {
	n.Helper()
	want := regexp.MustCompile("(?m)^" + line + "$")
	eventually(n.T, "/metrics has "+line, func() bool { return want.MatchString(scrapeOf(n.T, "http://"+n.admin, readToken)) })
}

const onCRM = `\{binding="crm",(partition="orders/crm/0",)?route="orders"\} `

// alertStates bring a bridge into the state of each alert, as its metrics show it.
// The status that commands may exit with beside 0 and 1 is returned.
var alertStates = map[string]func(t *testing.T) (n *night, also int){
	"GobridgeDown": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.dest.answers(401)
		first := n.start()
		n.post(202, "m-1", "cust-7781", body)
		n.kill(first)
		return n.night, 0
	},
	"GobridgeStoreUnreadable": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.start()
		n.shows("gobridge_store_readable 1")
		if _, err := n.database().Exec("ALTER TABLE gobridge_partition RENAME TO gone"); err != nil {
			t.Fatal(err)
		}
		n.shows("gobridge_store_readable 0")
		return n.night, 2
	},
	"GobridgeDestinationDown": func(t *testing.T) (*night, int) {
		return newAlertNight(t, "", "").stuck(401, "gobridge_circuit_open"+onCRM+"1")
	},
	"GobridgeOutboxStuck": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.dest.answers(500, "m-1")
		n.start()
		n.post(202, "good", "b", body)
		n.post(202, "m-1", "cust-7781", body)
		n.shows("gobridge_outbox_oldest_age_seconds" + onCRM + `[0-9]*\.[0-9]+`)
		n.shows("gobridge_sends_failed_total" + `\{binding="crm",outcome="transient",route="orders"\} [1-9]`)
		return n.night, 0
	},
	"GobridgeHeadStranded": func(t *testing.T) (*night, int) {
		release := make(chan struct{})
		hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		t.Cleanup(hangs.Close)
		t.Cleanup(func() { close(release) })
		n := newAlertNight(t, "", "", "timeout: 2s", "timeout: 10m")
		n.configure(strings.ReplaceAll(read(t, filepath.Join(n.dir, "b.yaml")), n.dest.server.URL, hangs.URL))
		n.start()
		n.post(202, "m-1", "cust-7781", body)
		n.shows("gobridge_outbox_claimed_depth" + onCRM + "1")
		n.shows("gobridge_outbox_depth" + onCRM + "0")
		return n.night, 0
	},
	"GobridgeKeysHalted": func(t *testing.T) (*night, int) {
		return newAlertNight(t, "\n    on_failure: halt_key", "").stuck(400, "gobridge_outbox_halted"+onCRM+"1")
	},
	"GobridgePaused": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.start()
		n.says(0, "gobridge pause orders/crm --yes --reason 'crm is moving'", "", "paused orders/crm")
		n.shows("gobridge_outbox_paused" + onCRM + "1")
		return n.night, 0
	},
	"GobridgeDeadLetters": func(t *testing.T) (*night, int) {
		return newAlertNight(t, "", "").stuck(422, "gobridge_outbox_dead_depth"+onCRM+"1")
	},
	"GobridgeMessagesRefused": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "\n        max_outbox_depth: 1")
		n.stuck(403, "gobridge_circuit_open"+onCRM+"1") // it has been sent, and
		n.shows("gobridge_outbox_depth" + onCRM + "1")  // is back
		n.post(503, "m-2", "b", body)
		n.shows(`gobridge_messages_refused_total\{reason="full",route="orders"\} 1`)
		return n.night, 0
	},
	"GobridgeNoOwner": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
			_, err := s.Leases().Acquire(ctx, gobridge.AcquireRequest{Partition: crm, Owner: "elsewhere-1-X", Term: time.Hour})
			return err
		})
		n.start()
		n.post(202, "m-1", "cust-7781", body)
		n.shows("gobridge_partitions_owned" + onCRM + "0")
		n.shows("gobridge_outbox_depth" + onCRM + "1")
		return n.night, 0
	},
	"GobridgeRemoved": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.start()
		n.seed(0, func(ctx context.Context, s *sqlite.Store) error {
			return s.Persist(ctx, []gobridge.Record{stored("old/crm/0", "m-1", "cust-7781")})
		})
		n.shows(`gobridge_outbox_depth\{binding="crm",partition="old/crm/0",route="old"\} 1`)
		return n.night, 0
	},
	"GobridgeNotReloaded": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		p := n.start()
		before := read(t, filepath.Join(n.dir, "b.yaml"))
		n.configure(strings.Replace(before, "routes:", "rutes:", 1))
		if err := p.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		n.shows("gobridge_configuration_current 0")
		n.configure(before) // what the page says
		return n.night, 0
	},
	"GobridgeClockJumped": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		n.dest.answers(401)
		n.start()
		n.seed(time.Hour, func(ctx context.Context, s *sqlite.Store) error {
			return s.Persist(ctx, []gobridge.Record{stored(crm, "m-1", "cust-7781")})
		})
		n.shows("gobridge_outbox_stamp_ahead_seconds" + onCRM + `35[0-9]{2}(\.[0-9]+)?`)
		return n.night, 0
	},
	"GobridgeLeasesLost": func(t *testing.T) (*night, int) {
		n := newAlertNight(t, "", "")
		first := n.start()
		n.post(202, "m-1", "cust-7781", body)
		n.arrives("m-1")
		n.shows("gobridge_outbox_claimed_depth" + onCRM + "0")
		eventually(t, "it stands still outside of a transaction", func() bool {
			if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			status, out := n.run("gobridge status", "")
			inside := status == 2 || strings.Contains(out, "store locked")
			if inside {
				_ = first.Process.Signal(syscall.SIGCONT) // the next signal tells if it has ended
			}
			return !inside
		})
		text := read(t, filepath.Join(n.dir, "b.yaml"))
		n.file("second.yaml", strings.ReplaceAll(text, n.admin, freePort(t)))
		second := n.bridge("gobridge run second.yaml")
		n.says(0, "gobridge status --owners", "", fmt.Sprintf("-%d-", second.Process.Pid))
		if err := first.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		n.shows(`gobridge_lease_changes_total\{binding="crm",change="lost",route="orders"\} 1`)
		return n.night, 0
	},
	"GobridgeDynamoDBThrottled": func(t *testing.T) (*night, int) {
		n, server := onTable(t)
		var calls atomic.Int64
		server.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault {
			if calls.Add(1) <= 3 {
				return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
			}
			return nil
		}})
		n.post(202, "m-1", "cust-7781", body)
		n.shows(`gobridge_dynamodb_throttles_total\{operation="[^"]+",resource="[^"]+"\} [1-9][0-9]*`)
		return n.night, 0
	},
	"GobridgeDeepBacklog": func(t *testing.T) (*night, int) {
		n, _ := onTable(t)
		n.post(202, "m-1", "cust-7781", body)
		n.shows("gobridge_dynamodb_outbox_claim_scan_pages_total" + onCRM + "[1-9][0-9]*")
		n.shows(`gobridge_claim_duration_seconds_count\{binding="crm",result="ok",route="orders"\} [1-9][0-9]*`)
		return n.night, 0
	},
}

// alertRule is a rule of the file.
type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../ops/prometheus/alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var out []alertRule
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// TestAlertsUseTheList: every metric of a rule is one that there is, every label one
// that it has, every rule has a test for promtool, and a page that says what to do.
func TestAlertsUseTheList(t *testing.T) {
	cases := read(t, "../../ops/prometheus/alerts_test.yml")
	for _, r := range alertRules(t) {
		checkExpression(t, r.Alert, r.Expr)
		if !strings.Contains(cases, "alertname: "+r.Alert+"\n        exp_alerts:\n          - ") {
			t.Errorf("%s has no test that it fires", r.Alert)
		}
		if r.Annotations["runbook"] != "docs/runbooks/"+r.Alert+".md" {
			t.Errorf("%s has the runbook %q", r.Alert, r.Annotations["runbook"])
		}
	}
}

var (
	metricName = regexp.MustCompile(`gobridge_[a-z_]+`)
	byLabels   = regexp.MustCompile(`(?:by|on) \(([a-z, ]+)\)`)
)

// checkExpression checks the names in an expression of Prometheus.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	labels := map[string]bool{"instance": true, "job": true, "le": true}
	for _, name := range metricName.FindAllString(expr, -1) {
		i := slices.IndexFunc(telemetry.Metrics(), func(m telemetry.Metric) bool {
			p := m.Prometheus()
			return name == p || m.Kind == telemetry.Histogram && slices.Contains([]string{p + "_bucket", p + "_count", p + "_sum"}, name)
		})
		if i < 0 {
			t.Errorf("%s: there is no metric %s", where, name)
			continue
		}
		for _, l := range telemetry.Metrics()[i].Labels {
			labels[l] = true
		}
	}
	for _, group := range byLabels.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(group[1], ",") {
			if !labels[strings.TrimSpace(l)] {
				t.Errorf("%s: none of its metrics has the label %s", where, l)
			}
		}
	}
}

// TestRunbooksHelp runs every command of every runbook against a bridge in the state
// that its alert is about.
func TestRunbooksHelp(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := alertRules(t)
	if len(pages) != len(rules) || len(alertStates) != len(rules) {
		t.Errorf("%d alerts have %d runbooks and %d states", len(rules), len(pages), len(alertStates))
	}
	for _, r := range rules {
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			commands := shellLines(read(t, "../../docs/runbooks/"+r.Alert+".md"))
			if len(commands) == 0 {
				t.Fatal("it has no command")
			}
			n, also := alertStates[r.Alert](t)
			for _, line := range commands {
				status, out := n.runbookLine(line)
				looks := strings.HasPrefix(line, "gobridge status")
				if status != 0 && (!looks || status != 1) && status != also {
					t.Errorf("%s: status %d:\n%s", line, status, out)
				}
				if status != 0 && strings.Contains(out, "Usage:") || strings.TrimSpace(out) == "" {
					t.Errorf("%s says\n%s", line, out)
				}
			}
		})
	}
}

// runbookLine runs a line of a runbook. A bridge is left running.
func (n *night) runbookLine(line string) (status int, out string) {
	n.Helper()
	line = strings.ReplaceAll(line, "http://127.0.0.1:9090", "http://"+n.admin)
	if strings.HasPrefix(line, "gobridge run ") {
		n.bridge(line)
		return 0, "it listens"
	}
	return n.run(line, "")
}

// shellLines returns the commands of a page.
func shellLines(page string) []string {
	var out []string
	inside := false
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = line == "```sh"
		} else if inside {
			out = append(out, line)
		}
	}
	return out
}

// onTable is a night on a DynamoDB table.
func onTable(t *testing.T) (*alertNight, *fakedynamo.Server) {
	t.Helper()
	server := fakedynamo.New(fakedynamo.Options{})
	t.Cleanup(server.Close)
	n := newAlertNight(t, "", "", "sqlite: { path: outbox.db }", fmt.Sprintf("dynamodb: { table: outbox, region: eu-central-1, endpoint: %q }", server.URL()))
	n.file("bin/gobridge", "#!/bin/sh\nexport AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true\n"+
		strings.TrimPrefix(read(t, filepath.Join(n.dir, "bin/gobridge")), "#!/bin/sh\n"))
	if status, out := n.run("gobridge table ensure", ""); status != 0 {
		t.Fatalf("table ensure: %s", out)
	}
	n.dest.answers(401)
	n.start()
	return n, server
}
