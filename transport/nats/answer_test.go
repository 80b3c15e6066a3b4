package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"gobridge"
)

func TestOutcome(t *testing.T) {
	api := func(http int, code jetstream.ErrorCode, text string) error {
		return fmt.Errorf("nats: %w", &jetstream.APIError{Code: http, ErrorCode: code, Description: text})
	}
	for _, c := range []struct {
		err           error
		fixed, chosen gobridge.Outcome // with a fixed subject, and one that an expression chose
	}{
		{api(400, 10054, "message size exceeds maximum allowed"), gobridge.OutcomePermanent, gobridge.OutcomePermanent},
		{api(400, 10097, "header size exceeds maximum allowed of 64k"), gobridge.OutcomePermanent, gobridge.OutcomePermanent},
		{api(503, 10077, "maximum messages exceeded"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{api(503, 10077, "maximum messages per subject exceeded"), gobridge.OutcomeTransient, gobridge.OutcomeTransient},
		{api(409, 10158, "duplicate message id is in process"), gobridge.OutcomeTransient, gobridge.OutcomeTransient},
		{api(400, 10060, "expected stream does not match"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{api(400, 10109, "invalid operation on sealed stream"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{api(503, 10076, "JetStream not enabled"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{api(429, 10211, "too many inflight"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{api(500, 1, "something new"), gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{jetstream.ErrNoStreamResponse, gobridge.OutcomeUnavailable, gobridge.OutcomeTransient},
		{jetstream.ErrInvalidJSAck, gobridge.OutcomeUnavailable, gobridge.OutcomeTransient},
		{fmt.Errorf("%w: x", client.ErrPermissionViolation), gobridge.OutcomeUnavailable, gobridge.OutcomeTransient},
		{client.ErrMaxPayload, gobridge.OutcomePermanent, gobridge.OutcomePermanent},
		{client.ErrBadSubject, gobridge.OutcomePermanent, gobridge.OutcomePermanent},
		{client.ErrHeadersNotSupported, gobridge.OutcomeUnavailable, gobridge.OutcomeUnavailable},
		{client.ErrConnectionClosed, gobridge.OutcomeTransient, gobridge.OutcomeTransient},
		{errors.New("no confirmation in 10s"), gobridge.OutcomeTransient, gobridge.OutcomeTransient},
	} {
		if got, _ := gobridge.Classify(outcome(c.err, false)); got != c.fixed {
			t.Errorf("%v: outcome %d, want %d", c.err, got, c.fixed)
		}
		if got, _ := gobridge.Classify(outcome(c.err, true)); got != c.chosen {
			t.Errorf("%v with a chosen subject: outcome %d, want %d", c.err, got, c.chosen)
		}
	}
	if _, after := gobridge.Classify(outcome(api(429, 10211, "too many inflight"), false)); after != slowDown {
		t.Errorf("too many requests: left alone for %s, want %s", after, slowDown)
	}
}

func TestSubjects(t *testing.T) {
	for subject, want := range map[string]string{
		"a": "", "orders.eu.placed": "", "größe.x": "", "a-b_c.1": "", "$KV.bucket.key": "", "a.b>c": "", "a.*b": "",
		"":              "is empty",
		"a b":           "space",
		"a\tb":          "space",
		"a\r\nPUB x 0":  "space",
		"a\x00":         "control",
		".a":            "empty token",
		"a.":            "empty token",
		"a..b":          "empty token",
		"a.*":           "wildcard",
		"a.>":           "wildcard",
		">":             "wildcard",
		"$JS.API.INFO":  "keeps for itself",
		"$SYS.x":        "keeps for itself",
		"_INBOX.x":      "keeps for itself",
		"a\x7f":         "control",
		longSubject(0):  "",
		longSubject(1):  "1025 bytes",
		"a.>.b":         "before its end",
		"_INBOXES.x":    "",
		"a.\u00a0b":     "", // no space to NATS
		"a.\xff":        "",
		"$KVX.y":        "keeps for itself",
		"INBOX.$SYS.ok": "",
	} {
		err := checkSubject(subject)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", subject, err, want)
		}
	}
	for filter, ok := range map[string]bool{"a.*.c": true, "a.>": true, ">": true, "a.>.b": false, "a..b": false, "a b": false} {
		if err := checkFilter(filter); (err == nil) != ok {
			t.Errorf("filter %q: %v", filter, err)
		}
	}
}

func longSubject(more int) string { return strings.Repeat("x", maxSubject+more) }

func TestRefusedSubject(t *testing.T) {
	for text, want := range map[string]string{
		`Permissions Violation for Publish to "foo.bar"`:      "foo.bar",
		`Permissions Violation for Publish to "a\"b"`:         `a"b`,
		`Permissions Violation for Subscription to "foo"`:     "",
		`Permissions Violation for Publish with Reply of "x"`: "",
		`Permissions Violation for Publish to "unterminated`:  "",
	} {
		got, is := refusedSubject(fmt.Errorf("%w: %s", client.ErrPermissionViolation, text))
		if got != want || is != (want != "") {
			t.Errorf("%s: %q, %v", text, got, is)
		}
	}
}

func TestServersThatReset(t *testing.T) {
	for version, want := range map[string]bool{
		"2.9.10": false, "2.13.9": false, "2.14.0": true, "2.15.3-RC.1": true, "3.0.0": true, "": false, "dev": false,
	} {
		if resets(version) != want {
			t.Errorf("version %q: %v, want %v", version, !want, want)
		}
	}
}
