package sqs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gobridge"
	"gobridge/internal/fakeaws"
	"gobridge/transport/sqs"
)

func TestMessagesOfOthers(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q.fifo")
	box := &outbox{}
	id := s.Put("q.fifo", "customer", "d-1", `{"n":1}`, "Content-Type", "application/json", "tenant", "blue")
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q.fifo"}), box.take)
	eventually(t, "its arrival", func() bool { return len(box.all()) == 1 })
	e := box.all()[0].Envelope
	if e.ID != id || e.OrderingKey != "customer" || e.ContentType != "application/json" || e.Headers["tenant"] != "blue" || e.CreatedAt.IsZero() {
		t.Errorf("it came as %+v, want ID %s", e, id)
	}
	s.Put("q.fifo", "g", "d-2", "ours", "gobridge", "id=order%2F1&subject=s")
	eventually(t, "its arrival", func() bool { return len(box.all()) == 2 })
	if e := box.all()[1].Envelope; e.ID != "order/1" || e.Subject != "s" || e.OrderingKey != "" {
		t.Errorf("it came as %+v, want no key: gobridge gave it none", e)
	}
}

func TestWhatIsNoMessageHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q.fifo")
	for i, attributes := range [][]string{
		{"gobridge", "id"}, {"gobridge", "id=%zz"}, {"gobridge-encoding", "rot13"}, {"gobridge-encoding", "empty"}, {"gobridge-created-at", "yesterday"},
	} {
		s.Put("q.fifo", "g", fmt.Sprint("bad-", i), "as it came", attributes...)
	}
	s.Put("q.fifo", "g", "good", "good")
	box := &outbox{}
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q.fifo"}), box.take)
	eventually(t, "the end of the queue", func() bool { return s.Left("q.fifo") == 0 })
	all := box.all()
	for _, in := range all[:5] {
		if in.Reject == nil || string(in.Envelope.Payload) != "as it came" || in.Envelope.ID == "" || in.Envelope.OrderingKey != "g" {
			t.Errorf("%+v is not rejected as it came", in)
		}
	}
	if len(all) != 6 || all[5].Reject != nil {
		t.Errorf("%d messages came", len(all))
	}
}

// While the outbox does not take them, and their time can't be extended, others
// take the messages of a group; nothing is stored behind what comes later.
func TestGroupsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	s := server(t)
	address := s.CreateQueue("q.fifo")
	for i := range 8 {
		s.Put("q.fifo", "g", fmt.Sprint("d-", i), fmt.Sprint(i))
	}
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "ChangeMessageVisibilityBatch" {
			return fakeaws.Fault{Code: "InternalError", Status: 500}
		}
		return fakeaws.Fault{}
	})
	var store sync.Mutex
	var stored []string
	taking := func(wait bool, lost *atomic.Int32) gobridge.Take {
		return func(ctx context.Context, batch []gobridge.Incoming) error {
			if wait {
				<-ctx.Done()
				lost.Add(1)
				return ctx.Err()
			}
			store.Lock()
			defer store.Unlock()
			for _, in := range batch {
				stored = append(stored, string(in.Envelope.Payload))
			}
			return nil
		}
	}
	var lost atomic.Int32
	o := sqs.ReceiverOptions{Queue: address, Visibility: 3 * time.Second}
	stop := receive(t, receiver(t, connect(t, s.URL()), o), taking(true, &lost))
	eventually(t, "a take that is given up", func() bool { return lost.Load() > 0 })
	stop()
	s.OnCall(nil)
	receive(t, receiver(t, connect(t, s.URL()), o), taking(false, nil))
	eventually(t, "the end of the queue", func() bool { return s.Left("q.fifo") == 0 })
	store.Lock()
	defer store.Unlock()
	if !slices.IsSorted(stored) || len(stored) < 8 {
		t.Errorf("stored %v", stored)
	}
}

func TestDeletionsThatFail(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q.fifo")
	for i := range 10 {
		s.Put("q.fifo", fmt.Sprint("g-", i), fmt.Sprint("d-", i), fmt.Sprint(i))
	}
	var entries atomic.Int32
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		switch {
		case c.Action != "DeleteMessageBatch":
			return fakeaws.Fault{}
		case c.N == 1:
			return fakeaws.Fault{Entries: func(fakeaws.Entry) (string, bool) {
				if entries.Add(1)%2 == 0 {
					return "InternalError", false
				}
				return "", false
			}}
		case c.N == 2:
			return fakeaws.Fault{Code: "ServiceUnavailable", Status: 503}
		}
		return fakeaws.Fault{}
	})
	box := &outbox{}
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q.fifo"}), box.take)
	eventually(t, "the end of the queue", func() bool { return s.Left("q.fifo") == 0 })
	if n := len(box.all()); n != 10 {
		t.Errorf("%d messages came, want each once", n)
	}
}

func TestWhatIsNotDeletedComesAgainAsADuplicate(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q")
	id := s.Put("q", "", "", "one")
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "DeleteMessageBatch" && c.N == 1 {
			return fakeaws.Fault{Entries: func(fakeaws.Entry) (string, bool) { return "ReceiptHandleIsInvalid", true }}
		}
		return fakeaws.Fault{}
	})
	box := &outbox{}
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q"}), box.take)
	eventually(t, "its arrival", func() bool { return s.Calls("DeleteMessageBatch") == 1 })
	s.Advance(2 * time.Minute)
	eventually(t, "the end of the queue", func() bool { return s.Left("q") == 0 })
	for _, in := range box.all() {
		if in.Envelope.ID != id {
			t.Errorf("it came as %s, want %s", in.Envelope.ID, id)
		}
	}
}

// At the end, what is not durable can be had by others at once, in order.
func TestWhatIsNotDurableIsGivenBack(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q.fifo")
	for i := range 30 {
		s.Put("q.fifo", fmt.Sprint("g-", i/10), fmt.Sprint("d-", i), fmt.Sprintf("%02d", i))
	}
	held := &outbox{before: func(ctx context.Context, _ []gobridge.Incoming) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	conn := connect(t, s.URL())
	stop := receive(t, receiver(t, conn, sqs.ReceiverOptions{Queue: "q.fifo"}), held.take)
	eventually(t, "receiving all", func() bool { n, _ := s.InFlight("q.fifo"); return n == 30 })
	stop()
	if n, _ := s.InFlight("q.fifo"); n != 0 {
		t.Errorf("%d messages are still in flight", n)
	}
	box := &outbox{}
	receive(t, receiver(t, conn, sqs.ReceiverOptions{Queue: "q.fifo"}), box.take)
	eventually(t, "the end of the queue", func() bool { return s.Left("q.fifo") == 0 })
	last := map[string]string{}
	for _, in := range box.all() {
		e := in.Envelope
		if body := string(e.Payload); body <= last[e.OrderingKey] {
			t.Errorf("%s came after %s", body, last[e.OrderingKey])
		}
		last[e.OrderingKey] = string(e.Payload)
	}
}

// Backpressure counts as one receive, however long it lasts: the queue's redrive
// policy takes nothing away.
func TestBackpressureIsNoFailedReceive(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q")
	s.CreateQueue("dead")
	s.Redrive("q", "dead", 1)
	for i := range 20 {
		s.Put("q", "", "", fmt.Sprint(i))
	}
	held := make(chan struct{})
	box := &outbox{before: func(context.Context, []gobridge.Incoming) error { <-held; return nil }}
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q", Visibility: 3 * time.Second}), box.take)
	eventually(t, "extending all of them for longer than they had", func() bool { return s.Calls("ChangeMessageVisibilityBatch") >= 8 })
	close(held)
	eventually(t, "the end of the queue", func() bool { return s.Left("q") == 0 })
	if s.Left("dead") != 0 || len(box.all()) != 20 {
		t.Errorf("%d messages came, %d went to the dead letters", len(box.all()), s.Left("dead"))
	}
}

func TestInHandIsBounded(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.CreateQueue("q")
	for i := range 500 {
		s.Put("q", "", "", fmt.Sprint(i))
	}
	held := make(chan struct{})
	box := &outbox{before: func(context.Context, []gobridge.Incoming) error { <-held; return nil }}
	receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "q", Prefetch: 60, Receivers: 3}), box.take)
	eventually(t, "a full hand", func() bool { _, most := s.InFlight("q"); return most == 60 })
	close(held)
	eventually(t, "the end of the queue", func() bool { return s.Left("q") == 0 })
	if _, most := s.InFlight("q"); most > 60 {
		t.Errorf("%d messages were in flight, want 60 at most", most)
	}
}

func TestAQueueThatComesLater(t *testing.T) {
	t.Parallel()
	s := server(t)
	box := &outbox{}
	r := receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: "later"})
	receive(t, r, box.take)
	eventually(t, "a look for it", func() bool { return s.Calls("GetQueueUrl") > 2 })
	if _, err := r.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "queue later") {
		t.Errorf("Connect says %v", err)
	}
	s.CreateQueue("later")
	s.Put("later", "", "", "one")
	eventually(t, "its arrival", func() bool { return slices.Equal(box.bodies(), []string{"one"}) })
}

func TestConnectSaysWhatIsThere(t *testing.T) {
	s := server(t)
	s.CreateQueue("q.fifo")
	conn := connect(t, s.URL())
	from := receiver(t, conn, sqs.ReceiverOptions{Queue: "q.fifo"})
	to := sender(t, conn, sqs.SenderOptions{Queue: "q.fifo"})
	for want, connect := range map[string]func(context.Context) (string, error){"takes messages off queue q.fifo, a FIFO queue": from.Connect, "sends to queue q.fifo": to.Connect} {
		if said, err := connect(t.Context()); err != nil || !strings.Contains(said, want) {
			t.Errorf("Connect says %q, %v", said, err)
		}
	}
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "SendMessageBatch" || c.Action == "DeleteMessageBatch" || c.Action == "ChangeMessageVisibilityBatch" {
			return fakeaws.Fault{Code: "AccessDenied", Status: 403}
		}
		return fakeaws.Fault{}
	})
	if _, err := from.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "sqs:DeleteMessage") || !strings.Contains(err.Error(), "sqs:ChangeMessageVisibility") {
		t.Errorf("Connect says %v", err)
	}
	if _, err := to.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "sqs:SendMessage") {
		t.Errorf("Connect says %v", err)
	}
	if n := len(s.Sent("q.fifo")); n != 0 {
		t.Errorf("looking sent %d messages", n)
	}
}

// What is in hand is bounded by its bytes, wherever in the messages they are.
func TestLargeAttributesAreCounted(t *testing.T) {
	t.Parallel()
	s := server(t)
	address := s.CreateQueue("q")
	large := strings.Repeat("x", 400<<10)
	for range 100 {
		s.Put("q", "", "", "small", "large", large)
	}
	o := sqs.ReceiverOptions{Queue: address, Receivers: 1}
	receive(t, receiver(t, connect(t, s.URL()), o), func(ctx context.Context, _ []gobridge.Incoming) error {
		<-ctx.Done()
		return ctx.Err()
	})
	inHand := func() int { now, _ := s.InFlight("q"); return now }
	eventually(t, "as much in hand as there may be", func() bool { return inHand() >= 16<<20/len(large) })
	time.Sleep(500 * time.Millisecond) // for what must not happen
	// Ten of the poll that was under way, and ten of one whose answer was lost, if any.
	if n := inHand(); n > 16<<20/len(large)+20 {
		t.Errorf("%d messages of %d bytes are in hand", n, len(large))
	}
}

// Messages that came one by one are kept ten by ten.
func TestExtensionsAreBatched(t *testing.T) {
	t.Parallel()
	s := server(t)
	address := s.CreateQueue("q")
	var most atomic.Int32
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "ChangeMessageVisibilityBatch" {
			most.Store(max(most.Load(), int32(len(c.Entries))))
		}
		return fakeaws.Fault{}
	})
	o := sqs.ReceiverOptions{Queue: address, Receivers: 1, Visibility: 6 * time.Second}
	receive(t, receiver(t, connect(t, s.URL()), o), func(ctx context.Context, _ []gobridge.Incoming) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for i := range 10 {
		s.Put("q", "", "", "x")
		eventually(t, "its arrival", func() bool { now, _ := s.InFlight("q"); return now == i+1 })
	}
	eventually(t, "an extension of several", func() bool { return most.Load() >= 5 })
	for _, n := range s.Received("q") {
		if n != 1 {
			t.Errorf("a message was given out %d times", n)
		}
	}
}

// A queue that answers no deletion does not keep a process from ending: there is one
// bound for all of them.
func TestEndsThoughNothingIsDeleted(t *testing.T) {
	t.Parallel()
	s := server(t)
	address := s.CreateQueue("q")
	for range 300 {
		s.Put("q", "", "", "x")
	}
	over := make(chan struct{})
	defer close(over)
	s.OnCall(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "DeleteMessageBatch" {
			return fakeaws.Fault{Wait: over}
		}
		return fakeaws.Fault{}
	})
	box := &outbox{}
	stop := receive(t, receiver(t, connect(t, s.URL()), sqs.ReceiverOptions{Queue: address}), box.take)
	eventually(t, "their arrival", func() bool { return len(box.all()) == 300 })
	stop()
	if n := s.Calls("DeleteMessageBatch"); n > 8 {
		t.Errorf("%d deletions were begun, want no more than are under way at a time", n)
	}
}
