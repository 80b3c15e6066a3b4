package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const awsFile = `
version: 1
store: { memory: {} }
connections:
  aws:  { aws: { region: eu-central-1, keys: { access_key: "${HUNTER}", secret_key: "${HUNTER}" } } }
  test: { aws: { endpoint: "http://127.0.0.1:4566", profile: test, tls: {} } }
routes:
  a:
    source: { sqs: { connection: aws, queue: orders.fifo, visibility_timeout: 90s, receivers: 8, prefetch: 500, sns_envelopes: keep } }
    bindings:
      billing: { sqs: { connection: aws, queue: "arn:aws:sqs:eu-central-1:123456789012:billing.fifo" } }
      lake:    { sqs: { connection: test, queue_from: '"lake-" + payload.site', attributes: { site: payload.site }, format: cloudevents_structured, fair: true } }
      news:    { sns: { connection: aws, topic: "arn:aws:sns:eu-central-1:123456789012:news.fifo", max_message_size: 1MiB } }
  b:
    source: { sqs: { connection: test, queue: "https://sqs.eu-central-1.amazonaws.com/123456789012/returns" } }
    bindings:
      news: { sns: { connection: aws, topic_from: subject } }
`

func TestAWS(t *testing.T) {
	c, err := parse(t, awsFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings %v", c.Warnings)
	}
	keys := c.Connections["aws"].AWS.Keys
	if secret, err := keys.SecretKey.Again(); secret != "hunter2hunter2" || err != nil || keys.SessionToken != nil {
		t.Errorf("keys %q, %v, %v", secret, err, keys.SessionToken)
	}
	if s := c.Routes["a"].Source.SQS; time.Duration(s.VisibilityTimeout) != 90*time.Second || s.Receivers != 8 || s.Prefetch != 500 || s.SNSEnvelopes != "keep" {
		t.Errorf("source %+v", s)
	}
	if s := c.Routes["b"].Source.SQS; time.Duration(s.VisibilityTimeout) != time.Minute || s.Receivers != 4 || s.Prefetch != 1000 || s.SNSEnvelopes != "unwrap" {
		t.Errorf("source %+v", s)
	}
	if b := c.Routes["a"].Bindings["lake"].SQS; b.QueueFrom == nil || b.Attributes["site"].Eval == nil || b.Format != "cloudevents_structured" || !bool(b.Fair) {
		t.Errorf("binding %+v", b)
	}
	if b := c.Routes["b"].Bindings["news"].SNS; b.MaxMessageSize != 256<<10 || b.Format != "plain" || bool(b.Fair) {
		t.Errorf("binding %+v", b)
	}
	for want, got := range map[string]string{
		"sqs queue orders.fifo by aws":             c.Routes["a"].Source.Describe(),
		"sqs queue returns by test":                c.Routes["b"].Source.Describe(),
		"sqs queue billing.fifo by aws":            c.Routes["a"].Bindings["billing"].Describe(),
		`sqs queue "lake-" + payload.site by test`: c.Routes["a"].Bindings["lake"].Describe(),
		"sns topic news.fifo by aws":               c.Routes["a"].Bindings["news"].Describe(),
		"sns topic subject by aws":                 c.Routes["b"].Bindings["news"].Describe(),
	} {
		if got != want {
			t.Errorf("described as %q, want %q", got, want)
		}
	}
}

func TestAWSThatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"half a key", `access_key: "${HUNTER}", `, "", "access_key is missing"},
		{"no queue", ", queue: orders.fifo", "", "queue is missing"},
		{"an impatient visibility timeout", "90s", "9s", "9s is out of bounds"},
		{"a visibility timeout of days", "90s", "2d", "2d is out of bounds"},
		{"half seconds", "90s", "90s500ms", "not in whole seconds"},
		{"no receivers", "receivers: 8", "receivers: 0", "1 to 64"},
		{"two queues", "queue_from:", "queue: x, queue_from:", "there is one queue here"},
		{"binary mode", "cloudevents_structured", "cloudevents", "cloudevents_structured"},
		{"too large a topic", "1MiB", "2MiB", "2097152 bytes are out of bounds"},
		{"one queue twice", `queue: "https://sqs.eu-central-1.amazonaws.com/123456789012/returns"`, "queue: a } }\n    bindings: { x: { stdout: {} } }\n" +
			"  c:\n    source: { sqs: { connection: test, queue: a", `queue "a" is that of route b, too`},
		{"seven attributes", "site: payload.site", "a: subject, b: subject, c: subject, d: subject, e: subject, f: subject, g: subject", "7 attributes are more than 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, strings.Replace(awsFile, c.from, c.to, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

// Two accounts can have queues of one name.
func TestQueuesOfOneName(t *testing.T) {
	const twice = `queue: "arn:aws:sqs:eu-central-1:111111111111:q" } }
    bindings: { x: { stdout: {} } }
  c:
    source: { sqs: { connection: test, queue: "https://sqs.eu-central-1.amazonaws.com/%s/q"`
	for account, want := range map[string]string{"222222222222": "", "111111111111": "is that of route b, too"} {
		_, err := parse(t, strings.Replace(awsFile, `queue: "https://sqs.eu-central-1.amazonaws.com/123456789012/returns"`, fmt.Sprintf(twice, account), 1))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("account %s: %v, want %q", account, err, want)
		}
	}
}

// What keeps no order is said where that matters.
func TestAWSWarnings(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"order into a standard queue", "billing.fifo", "billing", "routes.a.bindings.billing.sqs.queue"},
		{"order into a standard topic", "news.fifo", "news", "routes.a.bindings.news.sns.topic"},
		{"order out of a standard queue", "  b:\n", "  b:\n    ordering_key: subject\n", "routes.b.source.sqs.queue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(t, strings.Replace(awsFile, c.from, c.to, 1))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Warnings) != 1 || got.Warnings[0].Where != c.want {
				t.Errorf("warnings %v, want one at %s", got.Warnings, c.want)
			}
		})
	}
}
