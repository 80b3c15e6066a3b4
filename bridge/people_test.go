package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// TestWhateverPeopleDo lets people pause, halt, retry, redrive and discard
// while two processes with a failing store deliver, by single sends or in batches
// that fail half-way, under every policy. No message may be lost without a mark,
// no key may arrive out of order but for what was redriven, and no two sends of a
// key may overlap.
func TestWhateverPeopleDo(t *testing.T) {
	for range 2 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPeople(t, seed).run() })
		})
	}
}

type people struct {
	*torture
	binding bridge.Binding
}

func newPeople(t *testing.T, seed uint64) *people {
	x := &people{torture: newTorture(t, seed)}
	store := memory.Options{}
	if x.random(2) == 0 {
		store.MaxDead = 3
	}
	x.store = memory.New(store)
	x.binding = bridge.Binding{
		Name: "b", Concurrency: 1 + x.random(6),
		Retry:     bridge.Retry{Attempts: 1 + x.random(4), MaxBackoff: 30 * time.Second},
		OnFailure: bridge.FailurePolicy(x.random(3)),
	}
	if x.random(2) == 0 {
		x.binding.Rate = 40
	}
	x.binding.Sender = peopleSender{x}
	if x.random(2) == 0 {
		x.binding.Sender = peopleBatch{peopleSender{x}}
	}
	return x
}

// peopleSender answers each delivery as the torture's destination does, and more.
type peopleSender struct{ x *people }

func (s peopleSender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	out := make([]error, len(batch))
	stopped := map[string]bool{} // keys
	for i, d := range batch {
		key := d.Envelope.OrderingKey
		if stopped[key] && key != "" || i > 0 && s.x.once(40) {
			stopped[key] = true
			out[i] = gobridge.ErrNotSent
			continue
		}
		out[i] = s.x.dest.one(ctx, d)
		if out[i] == nil && s.x.once(100) { // it arrived, and the answer was lost
			out[i] = errors.New("the answer was lost")
		}
		switch {
		case out[i] != nil && s.x.once(10):
			out[i] = gobridge.Permanent(out[i])
		case s.x.once(400):
			runtime.Goexit()
		case s.x.once(400):
			return out[:i]
		}
		stopped[key] = out[i] != nil
	}
	return out
}

type peopleBatch struct{ peopleSender }

func (peopleBatch) BatchLimits() gobridge.BatchLimits { return gobridge.BatchLimits{MaxRecords: 8} }

func (x *people) process(ctx context.Context) {
	leases := &cutOff{LeaseStore: x.store.Leases()}
	store := &faulty{x.store.Handle(nil), func(string) (bool, bool) { return leases.off.Load() || x.once(15), x.once(15) }}
	opts := bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{x.binding}, OnExpire: bridge.ExpirePolicy(x.random(2))}}}
	opts.Leases = leases
	for ctx.Err() == nil {
		b := x.open(store, opts)
		runs, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- b.Run(runs) }()
		for range 1 + x.random(5) {
			x.sleep(ctx, time.Duration(x.random(20_000))*time.Millisecond)
			leases.off.Store(x.once(3))
		}
		if x.calm.Load() {
			leases.off.Store(false)
			x.sleep(ctx, 100*time.Hour)
		}
		stop()
		if err := <-done; err != nil {
			x.Errorf("a process: %v", err)
		}
		leases.off.Store(false)
	}
}

// interfere does one thing that a person might do.
func (x *people) interfere() {
	ctx := x.Context()
	key := fmt.Sprintf("k%d", x.random(tortureKeys))
	pause := gobridge.Control{Kind: gobridge.Pause, Route: "r", Binding: "b", By: "test"}
	halt := gobridge.Control{Kind: gobridge.Halt, Route: "r", Binding: "b", OrderingKey: key, By: "test"}
	filter := gobridge.Filter{Route: "r", Binding: "b"}
	var err error
	switch x.random(9) {
	case 0:
		err = x.store.SetControl(ctx, pause)
	case 1, 2:
		err = x.store.ClearControl(ctx, pause)
	case 3:
		err = x.store.SetControl(ctx, halt)
	case 4:
		x.liftAll()
	case 5:
		_, err = x.store.Retry(ctx, gobridge.RetryRequest{Filter: filter})
	case 6:
		_, err = x.store.Redrive(ctx, gobridge.BulkRequest{Filter: filter, Limit: 10})
	case 7:
		filter.EnvelopeID = fmt.Sprintf("%s-%d", key, 1+x.random(tortureMessages))
		filter.States = []gobridge.State{gobridge.StatePending, gobridge.StateDead}
		_, err = x.store.Discard(ctx, gobridge.BulkRequest{Filter: filter, Reason: "a person's"})
	}
	if err != nil && !errors.Is(err, gobridge.ErrNotFound) {
		x.Error(err)
	}
}

func (x *people) liftAll() {
	controls, err := x.store.ListControls(x.Context())
	if err != nil {
		x.Fatal(err)
	}
	for _, c := range controls {
		if err := x.store.ClearControl(x.Context(), c); err != nil && !errors.Is(err, gobridge.ErrNotFound) {
			x.Fatal(err)
		}
	}
}

func (x *people) run() {
	ctx, cancel := context.WithCancel(x.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { x.process(ctx) })
	}
	producer := x.open(x.store, bridge.Options{Routes: []bridge.Route{{Name: "r", Bindings: []bridge.Binding{x.binding}}}}).Route("r")
	var ids []string
	for i := 1; i <= tortureMessages; i++ {
		for k := range tortureKeys {
			key := fmt.Sprintf("k%d", k)
			e := messaging.Envelope{ID: fmt.Sprintf("%s-%d", key, i), OrderingKey: key}
			if k == 0 {
				e.OrderingKey = ""
			}
			switch {
			case x.once(30):
				e.ExpiresAt = time.Now().Add(time.Duration(x.random(20)) * time.Second)
			case x.once(30):
				e.NotBefore = time.Now().Add(time.Duration(x.random(20)) * time.Second)
			}
			if _, err := producer.Publish(ctx, e); err != nil {
				x.Fatal(err)
			}
			ids = append(ids, e.ID)
		}
		x.down.Store(x.once(10))
		x.after(time.Duration(x.random(500)) * time.Millisecond)
		x.interfere()
	}
	for range 100 {
		x.after(time.Duration(x.random(3000)) * time.Millisecond)
		x.interfere()
	}
	x.calm.Store(true)
	x.down.Store(false)
	for range 30 { // dead letters may be full more than once
		x.liftAll()
		if _, err := x.store.Redrive(ctx, gobridge.BulkRequest{Filter: gobridge.Filter{Route: "r"}, Limit: 1000}); err != nil {
			x.Fatal(err)
		}
		expired := gobridge.Filter{Route: "r", Reason: gobridge.ReasonExpired, States: []gobridge.State{gobridge.StateDead}}
		if _, err := x.store.Discard(ctx, gobridge.BulkRequest{Filter: expired, Limit: 1000, Reason: "a person's"}); err != nil {
			x.Fatal(err)
		}
		x.after(10 * time.Minute)
	}
	cancel()
	all.Wait()
	x.check(ids)
}

func (x *people) check(ids []string) {
	arrived := map[string]bool{}
	newest := map[string]int64{} // by key
	for _, d := range x.dest.taken() {
		id, key := d.Envelope.ID, d.Envelope.OrderingKey
		if arrived[id] {
			if d.Attempt < 2 && d.Redrives == 0 {
				x.Errorf("%s arrived again as attempt %d", id, d.Attempt)
			}
			continue
		}
		arrived[id] = true
		if key != "" && d.Seq < newest[key] {
			x.Errorf("%s, number %d, arrived first after number %d of its key; %d redrives", id, d.Seq, newest[key], d.Redrives)
		}
		if key != "" {
			newest[key] = max(newest[key], d.Seq)
		}
	}
	marks := map[gobridge.State]int{}
	for _, id := range ids {
		r, err := x.store.Get(x.Context(), gobridge.Ref{Partition: partition, EnvelopeID: id, Binding: "b"})
		if err != nil {
			x.Fatal(err)
		}
		marks[r.State]++
		switch {
		case r.State == gobridge.StateDelivered && !arrived[id]:
			x.Errorf("%s is marked as delivered and never arrived", id)
		case !r.State.Ended():
			x.Errorf("%s is still %s (%s: %s)", id, r.State, r.Reason, r.Error)
		case r.State != gobridge.StateDelivered && r.Reason == "":
			x.Errorf("%s is %s without a reason", id, r.State)
		}
	}
	x.Logf("%d messages, %d arrivals, %d tries; ends: %v", len(ids), len(x.dest.taken()), x.dest.sends(), marks)
}
