package amqp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"gobridge"
	"gobridge/internal/mapping"
	"gobridge/messaging"
	"gobridge/transport/amqp"
)

// TestTimestampThatIsNoTime: many producers write milliseconds. That is no reason to
// refuse their messages.
func TestTimestampThatIsNoTime(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		last := int64(9214646399) // the last second of 2261
		seconds := []int64{1, last, last + 1, 1767323045000, 1 << 62, 0, -5}
		for _, s := range seconds {
			r.put(t, q, amqp091.Publishing{Timestamp: time.Unix(s, 0), Headers: amqp091.Table{"amqp-timestamp": "forged"}})
		}
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Dedupe: amqp.ByNothing})
		for i, in := range box.await(t, len(seconds)) {
			in.Envelope.ID = "given"
			if err := (gobridge.Limits{}).CheckEnvelope(&in.Envelope); err != nil || in.Reject != nil {
				t.Errorf("%d seconds: %v, %v", seconds[i], err, in.Reject)
			}
			if good := seconds[i] > 0 && seconds[i] <= last; good && in.Envelope.CreatedAt.Unix() != seconds[i] || good != !in.Envelope.CreatedAt.IsZero() {
				t.Errorf("%d seconds: created at %v", seconds[i], in.Envelope.CreatedAt)
			} else if kept, there := in.Envelope.Headers["amqp-timestamp"]; good && there || !good && kept != fmt.Sprint(seconds[i]) {
				t.Errorf("%d seconds: the header is %q", seconds[i], kept)
			}
		}
	})
}

// TestStreamIsRefused: it would begin at its end after each break, and lose what came
// in between.
func TestStreamIsRefused(t *testing.T) {
	live(t)
	r := liveRig(t)
	q := r.queue(t, amqp091.Table{"x-queue-type": "stream"})
	var log logs
	box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Logger: log.logger()})
	eventually(t, "the report", func() bool {
		r.put(t, q, amqp091.Publishing{MessageId: "1"})
		return log.has("a stream keeps no place for a consumer")
	})
	if got := box.all(); len(got) > 0 {
		t.Errorf("taken all the same: %+v", got)
	}
}

// TestOffsetsOfAStreamInAQueue: a message that was copied from a stream with its
// headers is one like any other, and so is what is behind it.
func TestOffsetsOfAStreamInAQueue(t *testing.T) {
	for kind, arguments := range map[string]amqp091.Table{"classic": {}, "quorum": {"x-queue-type": "quorum"}} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				q := r.queue(t, arguments)
				all := make([]amqp091.Publishing, 50)
				for i := range all {
					all[i] = amqp091.Publishing{MessageId: fmt.Sprint(i), Headers: amqp091.Table{"x-stream-offset": int64(i)}}
				}
				all[0].Headers = nil
				r.put(t, q, all...)
				box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q, Prefetch: 10})
				for i, in := range box.await(t, len(all)) {
					if in.Envelope.ID != fmt.Sprint(i) {
						t.Fatalf("place %d has message %s", i, in.Envelope.ID)
					}
				}
			})
		})
	}
}

// TestIDsWithoutRoom: message-id has 255 bytes, and a redrive makes an ID longer.
func TestIDsWithoutRoom(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		reader := r.read(t, q)
		s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
		seen := map[string]string{}
		n := 0
		for _, id := range []string{strings.Repeat("i", 255), strings.Repeat("i", 256), strings.Repeat("i", 255) + "~1~1", "\xff"} {
			for redrives := range 2 {
				e := messaging.Envelope{ID: id}
				if err := s.Carry(&e); err != nil {
					t.Error(err)
				}
				d := deliveries(e)
				d[0].Redrives = redrives
				if err := s.Send(t.Context(), d)[0]; err != nil {
					t.Errorf("%q, %d redrives: %v", id, redrives, err)
					continue
				}
				n++
				got := reader.await(t, n)[n-1]
				if before, twice := seen[got.MessageId]; twice || got.Headers["gobridge-id"] != id {
					t.Errorf("%q and %q have the message-id %q", id, before, got.MessageId)
				}
				seen[got.MessageId] = id
			}
		}
		if seen[strings.Repeat("i", 255)] == "" {
			t.Error("an ID for which there is room is not there as it is")
		}
	})
}

// TestEncodingIsThatOfTheBody: in JSON the payload is packed, and the JSON around it
// is not.
func TestEncodingIsThatOfTheBody(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		c := r.connect(t)
		want := messaging.Envelope{
			ID: "1", Subject: "s", ContentType: "text/plain", Payload: []byte{0x1f, 0x8b}, Headers: messaging.Headers{"content-encoding": "gzip"},
		}
		for format, encoding := range map[mapping.Format]string{mapping.Plain: "gzip", mapping.Binary: "gzip", mapping.Structured: ""} {
			q, copied := r.queue(t), r.queue(t)
			x := r.exchange(t, "fanout")
			r.bind(t, q, x, "")
			r.bind(t, copied, x, "")
			reader := r.read(t, copied)
			s := sender(t, c, amqp.SenderOptions{Exchange: x, Format: format})
			if err := send(t, s, want)[0]; err != nil {
				t.Fatal(err)
			}
			if got := reader.await(t, 1)[0]; got.ContentEncoding != encoding || got.Headers["content-encoding"] != nil {
				t.Errorf("%s: content-encoding is %q, and header %v", format, got.ContentEncoding, got.Headers["content-encoding"])
			}
			box, stop := receive(t, c, amqp.ReceiverOptions{Queue: q})
			got := box.await(t, 1)[0].Envelope
			stop()
			if got.Headers["content-encoding"] != "gzip" || string(got.Payload) != string(want.Payload) {
				t.Errorf("%s: it arrived as %+v", format, got)
			}
		}
	})
}

// TestHeadersThatGrow: a message was published with as much as a frame holds, and the
// server adds a header of its own when it comes again. It is one like any other, and
// so is what is behind it.
func TestHeadersThatGrow(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		s := sender(t, r.connect(t), amqp.SenderOptions{RoutingKey: q})
		least, most := 100<<10, 128<<10 // the size of the largest header is between them
		for least+1 < most {
			size := (least + most) / 2
			err := send(t, s, messaging.Envelope{ID: "m", Headers: messaging.Headers{"x": strings.Repeat("v", size)}})[0]
			switch outcome, _ := gobridge.Classify(err); {
			case err == nil:
				least = size
			case outcome == gobridge.OutcomePermanent:
				most = size
			default:
				t.Fatal(err)
			}
		}
		held := &outbox{gate: make(chan struct{})}
		stop := run(t, r.connect(t), amqp.ReceiverOptions{Queue: q}, held)
		eventually(t, "the first delivery", func() bool { return held.takes.Load() > 0 })
		stop()
		r.put(t, q, amqp091.Publishing{MessageId: "behind it"})
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q})
		eventually(t, "the message behind it", func() bool {
			all := box.all()
			return len(all) > 0 && all[len(all)-1].Envelope.ID == "behind it"
		})
		all := box.all()
		if m := all[len(all)-2].Envelope; len(m.Headers["x"]) < least-1 || m.Headers[messaging.HeaderDeliveryCount] == "" {
			t.Errorf("the one before it has a header of %d bytes, and the count %q", len(m.Headers["x"]), m.Headers[messaging.HeaderDeliveryCount])
		}
	})
}

// TestHeadersThatTheClientCannotRead: such a message is rejected, and what is behind it
// is taken.
func TestHeadersThatTheClientCannotRead(t *testing.T) {
	nested := func(depth int, inner any) any {
		for range depth {
			inner = amqp091.Table{"in": []any{inner}}
		}
		return inner
	}
	many := amqp091.Table{}
	for i := range 8193 {
		many[fmt.Sprint(i)] = nil
	}
	each(t, func(t *testing.T, r *rig) {
		q := r.queue(t)
		r.put(t, q,
			amqp091.Publishing{MessageId: "deep", ContentType: "text/plain", ContentEncoding: "x", Headers: amqp091.Table{"a": nested(16, "text")}, Body: []byte("p")},
			amqp091.Publishing{MessageId: "too deep", ContentType: "text/plain", ContentEncoding: "x", AppId: "shop", Headers: amqp091.Table{"a": nested(17, "text")}, Body: []byte("p")},
			amqp091.Publishing{MessageId: "too many", Headers: many, Body: []byte("p")},
			amqp091.Publishing{MessageId: "behind", Body: []byte("p")})
		box, _ := receive(t, r.connect(t), amqp.ReceiverOptions{Queue: q})
		for i, want := range []string{"deep", "too deep", "too many", "behind"} {
			in := box.await(t, 4)[i]
			rejected := strings.HasPrefix(want, "too")
			if in.Envelope.ID != want || string(in.Envelope.Payload) != "p" || (in.Reject != nil) != rejected {
				t.Errorf("place %d has %s %q, rejected: %v", i, in.Envelope.ID, in.Envelope.Payload, in.Reject)
			}
			if rejected && (!strings.Contains(in.Reject.Error(), "can't be read") || len(in.Envelope.Headers["gobridge-amqp-headers"]) < 100) {
				t.Errorf("%s: %v, headers of %d bytes", want, in.Reject, len(in.Envelope.Headers["gobridge-amqp-headers"]))
			}
			if want == "too deep" && (in.Envelope.ContentType != "text/plain" || in.Envelope.Headers["amqp-app-id"] != "shop") {
				t.Errorf("%s: it is %+v", want, in.Envelope)
			}
		}
	})
}
