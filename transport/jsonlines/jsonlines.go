// Package jsonlines writes messages as lines of JSON: to a file, which has them
// on disk before the delivery counts as done, or to a stream such as standard
// output.
//
// # The line
//
// Each delivery is one JSON object (RFC 8259) on a line of its own:
//
//	{"id":"018f...","subject":"order.placed","key":"cust-7","content_type":"application/json",
//	 "headers":{"traceparent":"00-..."},"route":"orders","binding":"audit","partition":"orders/audit/0",
//	 "attempt":1,"seq":42,"version":3,"delivered_at":"2026-01-02T03:04:05.678Z","data":{"total":12.50}}
//
// id, route, binding, partition, attempt, seq, version and delivered_at are
// always there; subject, key, content_type, headers, redrives, created_at and
// expires_at only when the message has them. Attempt 1 is surely the first
// attempt, and more may be a repeat; version is that of the partition's owner
// and seq the record's number in the partition.
//
// The payload is always exact, in one of three members:
//
//   - data, when the content type says JSON and the payload is valid JSON on one
//     line without white space around it: the value stands in the line byte for
//     byte as it came. A reader that keeps the text of a value (json.RawMessage
//     in Go) has the exact bytes, any other the same value.
//   - data_text, when it is other valid UTF-8 (JSON on several lines, for
//     instance): the string is the payload.
//   - data_base64 otherwise: standard base64, with padding.
//
// An empty payload is an empty data_text. A text that is not valid UTF-8 stands
// as base64 under its name with _base64 added (id_base64, key_base64, ...), and
// the headers with such a name or value stand in headers_base64, a list of
// pairs. [Decode] reads all of it back.
package jsonlines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"gobridge"
)

// The bounds of a batch.
const (
	maxBatchRecords = 1000
	maxBatchBytes   = 8 << 20
)

// Writer sends to a stream. It is safe for concurrent use.
type Writer struct {
	now func() time.Time

	mu   sync.Mutex
	w    io.Writer
	line []byte
	torn bool // the stream ends within a line
}

// Stdout returns a sender that writes to w, os.Stdout as a rule. A delivery is
// done when w has taken it; whether it is on disk is not known.
//
// A write that blocks, for nobody reads the pipe, can't be cancelled.
func Stdout(w io.Writer) *Writer { return &Writer{w: w, now: time.Now} }

// BatchLimits bounds what is held in memory.
func (s *Writer) BatchLimits() gobridge.BatchLimits { return batchLimits() }

// Send writes the batch. If that fails, no delivery of it counts as done.
func (s *Writer) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return all(batch, fmt.Errorf("write JSON lines: %w", err))
	}
	buffer := s.line[:0]
	if s.torn {
		buffer = append(buffer, '\n') // so that what comes next is a line again
	}
	buffer = appendLines(buffer, batch, s.now())
	s.line = reuse(buffer)
	n, err := s.w.Write(buffer)
	if err == nil && n < len(buffer) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		s.torn = buffer[min(n, len(buffer))-1] != '\n'
	}
	if err != nil {
		return all(batch, gobridge.Unavailable(fmt.Errorf("write JSON lines: %w", err)))
	}
	return make([]error, len(batch))
}

func batchLimits() gobridge.BatchLimits {
	return gobridge.BatchLimits{MaxRecords: maxBatchRecords, MaxBytes: maxBatchBytes}
}

// all answers the same for every delivery.
func all(batch []gobridge.Delivery, err error) []error {
	out := make([]error, len(batch))
	for i := range out {
		out[i] = err
	}
	return out
}

func appendLines(dst []byte, batch []gobridge.Delivery, at time.Time) []byte {
	for i := range batch {
		dst = appendLine(dst, &batch[i], at)
		dst = append(dst, '\n')
	}
	return dst
}

// reuse returns the buffer for the next batch, unless a rare large one would
// then hold memory for good.
func reuse(buffer []byte) []byte {
	if cap(buffer) > 1<<20 {
		return nil
	}
	return buffer[:0]
}

var errClosed = errors.New("sender closed")
