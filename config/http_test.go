package config_test

import (
	"os"
	"strings"
	"testing"
)

// The configuration in the documentation is one.
func TestHTTPAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/transports/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	file, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example in docs/transports/http.md")
	}
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	file = strings.NewReplacer("${file:secrets/in}", secret, "${file:secrets/crm}", secret).Replace(file)
	c, err := parse(t, file)
	if err != nil {
		t.Fatal(err)
	}
	route := c.Routes["orders"]
	if s := route.Source.HTTP; s.Path != "/orders" || s.MaxBatch != 1000 || s.MaxBody != 1<<20 {
		t.Errorf("source %+v", s)
	}
	if w := route.Bindings["crm"].Webhook; w.Format != "plain" {
		t.Errorf("webhook %+v", w)
	}
	for what, change := range map[string][2]string{
		"format":    {"format: plain", "format: avro"},
		"max_batch": {"max_batch: 1000", "max_batch: 0"},
	} {
		if _, err := parse(t, strings.Replace(file, change[0], change[1], 1)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	c, err = parse(t, strings.NewReplacer("format: plain", "format: cloudevents_structured", "        max_batch: 1000\n", "").Replace(file))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Routes["orders"]; got.Bindings["crm"].Webhook.Format != "cloudevents_structured" || got.Source.HTTP.MaxBatch != 1000 {
		t.Errorf("route %+v", got)
	}
}
