package bridge

import (
	"log/slog"
	"strings"

	"gobridge/messaging"
)

// about is what a line of the log says about one message: its ID as record and, if it
// has a trace context, trace_id. Nothing of its content.
func about(e *messaging.Envelope) slog.Attr {
	record := slog.String("record", e.ID)
	if id := traceID(e); id != "" {
		return slog.Group("", record, slog.String("trace_id", id)) // without a name: as if they stood alone
	}
	return record
}

// traceID returns the trace-id of a message's traceparent (W3C Trace Context, section
// 3.2.2.3), "" if it has none.
func traceID(e *messaging.Envelope) string {
	const size = 32
	_, rest, _ := strings.Cut(e.Headers[messaging.HeaderTraceParent], "-")
	id, _, _ := strings.Cut(rest, "-")
	if len(id) != size || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}
