package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// TestLogNamesRecordAndTrace: a line about a message has its ID and its trace's, so far
// as it has one, and nothing of what is in it.
func TestLogNamesRecordAndTrace(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for parent, want := range map[string]string{
		"00-" + trace + "-b7ad6b7169203331-01": " record=m-1 trace_id=" + trace + " ",
		"00-nonsense":                          " record=m-1 ",
		"":                                     " record=m-1 ",
	} {
		var log bytes.Buffer
		options := one(bridge.Binding{Sender: gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error {
			return gobridge.Permanent(errors.New("no"))
		})})
		options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b, err := bridge.New(memory.New(memory.Options{}), options)
		if err != nil {
			t.Fatal(err)
		}
		e := messaging.Envelope{ID: "m-1", Payload: []byte("PAYLOAD"), Headers: messaging.Headers{"x": "HEADER", "traceparent": parent}}
		if _, err := b.Route("r").Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if !strings.Contains(text, `msg="record failed for good"`) || !strings.Contains(text, want) || strings.Count(text, "trace_id") != strings.Count(want, "trace_id") {
			t.Errorf("traceparent %q: the log lacks %q:\n%s", parent, want, text)
		}
		if strings.Contains(text, "PAYLOAD") || strings.Contains(text, "HEADER") {
			t.Errorf("the log has content:\n%s", text)
		}
	}
}
