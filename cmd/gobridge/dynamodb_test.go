package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gobridge/internal/fakedynamo"
)

// TestDynamoDB goes from no table to a delivered message with the commands of a
// first day.
func TestDynamoDB(t *testing.T) {
	server := fakedynamo.New(fakedynamo.Options{})
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	file := filepath.Join(t.TempDir(), "out.jsonl")
	text := fmt.Sprintf(`
version: 1
store: { dynamodb: { table: outbox, region: eu-central-1, endpoint: %q } }
http: { listen: "127.0.0.1:0" }
admin: { listen: "127.0.0.1:0", tokens: { read: %q } }
routes:
  orders:
    source: { http: { path: /orders } }
    ordering_key: payload.customer
    bindings:
      lines: { file: { path: %q } }
`, server.URL(), readToken, file)
	config := write(t, text)
	command := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		status := execute(context.Background(), append(args, "--config", config), &stdout, &stderr)
		return status, stdout.String() + stderr.String()
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"table", "plan"}, statusOK, "AWS::DynamoDB::Table"},
		{[]string{"table", "check"}, statusFailed, "outbox"},
		{[]string{"table", "ensure"}, statusOK, "table outbox is ready"},
		{[]string{"table", "ensure"}, statusOK, "table outbox is ready"},
		{[]string{"table", "check"}, statusOK, "as it has to be"},
	} {
		if status, said := command(c.args...); status != c.status || !strings.Contains(said, c.says) {
			t.Fatalf("%v: status %d, says %s", c.args, status, said)
		}
	}

	p := start(t, text)
	url := p.address() + "/orders"
	for i := range 10 {
		if status, answer := post(t, url, fmt.Sprintf(`{"customer":"c","n":%d}`, i)); status != 202 {
			t.Fatalf("post %d: %d %s", i, status, answer)
		}
	}
	var lines string
	eventually(t, "all are delivered", func() bool {
		data, _ := os.ReadFile(file)
		lines = string(data)
		return strings.Count(lines, "\n") == 10
	})
	last := -1
	for i := range 10 {
		at := strings.Index(lines, fmt.Sprintf(`"n":%d}`, i))
		if at < last {
			t.Fatalf("out of order:\n%s", lines)
		}
		last = at
	}
	if status, said := command("status"); status != statusOK || !strings.Contains(said, "orders/lines") {
		t.Fatalf("status: %d, says %s", status, said)
	}
	if status, said := command("dead", "list", "orders", "--cursor", "nonsense"); status != statusRefused || !strings.Contains(said, "invalid cursor") {
		t.Errorf("a cursor of nobody: status %d, says %s", status, said)
	}
	scraped := scrapeOf(t, p.admin(), readToken)
	for _, want := range []string{
		`gobridge_dynamodb_outbox_claim_scan_pages_total{binding="lines",partition="orders/lines/0",route="orders"}`,
		`gobridge_dynamodb_write_units_total{operation="persist",resource="table"}`,
		`gobridge_dynamodb_calls_total{operation="claim",resource=`,
	} {
		if !strings.Contains(scraped, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if status := p.stop(); status != statusOK {
		t.Fatalf("stopped with status %d: %s", status, p.stderr.String())
	}
}

func TestTableWantsADynamoDBStore(t *testing.T) {
	config := write(t, "version: 1\nstore: { memory: {} }\nroutes: { r: { source: { http: { path: /r } }, bindings: { out: { stdout: {} } } } }\n")
	var stdout, stderr bytes.Buffer
	if status := execute(t.Context(), []string{"table", "check", "--config", config}, &stdout, &stderr); status != statusRefused ||
		!strings.Contains(stderr.String(), "no dynamodb table") {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
}
