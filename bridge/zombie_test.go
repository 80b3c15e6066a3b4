package bridge

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/store/memory"
)

// counted is a store that counts what settles or puts on hold.
type counted struct {
	*memory.Store
	settles atomic.Int64
}

func (s *counted) Complete(ctx context.Context, t gobridge.Token, c []gobridge.Completion) error {
	s.settles.Add(1)
	return s.Store.Complete(ctx, t, c)
}

func (s *counted) Release(ctx context.Context, t gobridge.Token, r []gobridge.Release) error {
	s.settles.Add(1)
	return s.Store.Release(ctx, t, r)
}

func (s *counted) DeadLetter(ctx context.Context, t gobridge.Token, b []gobridge.Burial) error {
	s.settles.Add(1)
	return s.Store.DeadLetter(ctx, t, b)
}

func (s *counted) SetControl(ctx context.Context, c gobridge.Control) error {
	s.settles.Add(1)
	return s.Store.SetControl(ctx, c)
}

// TestAStoppedProcessDoesNothingWhenItGoesOn has a process whose clock says that
// the term is over while no timer has gone off yet, as after SIGSTOP: before a
// send, and while one is under way that then succeeds, or fails for good.
func TestAStoppedProcessDoesNothingWhenItGoesOn(t *testing.T) {
	for name, answer := range map[string]error{"delivered": nil, "failed for good": gobridge.Permanent(context.DeadlineExceeded)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var over atomic.Bool
				sends := 0
				store := &counted{Store: memory.New(memory.Options{})}
				send := func(context.Context, gobridge.Delivery) error {
					sends++
					over.Store(true)
					return answer
				}
				b, err := New(store, Options{Routes: []Route{{Name: "r", Bindings: []Binding{
					{Name: "b", Sender: gobridge.HandlerFunc(send), OnFailure: FailHaltKey},
				}}}})
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range []string{"1", "2", "3"} {
					if _, err := b.Route("r").Publish(t.Context(), messaging.Envelope{ID: id, OrderingKey: "k"}); err != nil {
						t.Fatal(err)
					}
				}
				goOn := func(version int64, want int) {
					t.Helper()
					sends = 0
					work, end := context.WithCancel(t.Context())
					done := make(chan error, 1)
					token := gobridge.Token{Owner: "o", Version: version}
					go func() { done <- b.lineup.Load().destinations[0].serve(t.Context(), work, token, over.Load, false) }()
					time.Sleep(time.Minute)
					end()
					if err := <-done; err == nil {
						t.Error("it ended by itself")
					}
					if sends != want || store.settles.Load() != 0 {
						t.Errorf("under version %d: %d sends, %d settling calls; want %d and none", version, sends, store.settles.Load(), want)
					}
				}
				goOn(1, 1)
				goOn(2, 0)
			})
		})
	}
}

func TestTermEndsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &tenancy{}
		lease.work, lease.cancel = context.WithCancelCause(t.Context())
		ends := time.Now().Add(time.Second)
		lease.deadline.Store(&ends)
		if lease.over() {
			t.Error("over before its end")
		}
		time.Sleep(time.Second)
		if !lease.over() || !errors.Is(context.Cause(lease.work), errTermEnded) {
			t.Errorf("not over at its end: %v", context.Cause(lease.work))
		}
	})
}
