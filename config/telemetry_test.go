package config_test

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The telemetry of the documentation is one, and shares are percentages.
func TestTelemetryAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\ntelemetry:")
	section, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example in docs/metrics.md")
	}
	section = "telemetry:" + strings.ReplaceAll(section, "${file:secrets/collector}", "Bearer hush")
	c, err := parse(t, small+section)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Telemetry.OTLP
	secret := o.Headers["Authorization"]
	if o.Endpoint.Reveal() != "http://127.0.0.1:4318" || time.Duration(o.Interval) != 30*time.Second || o.Traces != 0.05 || secret.Reveal() != "Bearer hush" {
		t.Errorf("%+v", o)
	}
	if shown := c.Show(); strings.Contains(shown, "hush") || !strings.Contains(shown, "5%") {
		t.Errorf("shown as\n%s", shown)
	}
	for share, good := range map[string]bool{"0%": true, "100%": true, "0.5%": true, "101%": false, "-1%": false, "5": false, "NaN%": false, "1e1%": false, "%": false} {
		_, err := parse(t, small+strings.Replace(section, "5%", `"`+share+`"`, 1))
		if good && err != nil || !good && (err == nil || !strings.Contains(err.Error(), "telemetry.otlp.traces")) {
			t.Errorf("%s: %v", share, err)
		}
	}
}
