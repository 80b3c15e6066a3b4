package bridge_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/store/memory"
)

// eventLog is an observer that keeps what it is told.
type eventLog struct {
	mu  sync.Mutex
	all []bridge.Event
}

func (l *eventLog) Observe(_ context.Context, e bridge.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) of(kind bridge.EventKind) (out []bridge.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// said is a log handler that keeps what is said.
type said struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }
func (s *said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *said) WithGroup(string) slog.Handler            { return s }

func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, r)
	return nil
}

// of returns how often a message was said, and the largest count in it.
func (s *said) of(message string) (times int, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.lines {
		if r.Message != message {
			continue
		}
		times++
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "times" {
				most = max(most, a.Value.Int64())
			}
			return true
		})
	}
	return times, most
}

func (s *said) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.lines) - 1; i >= 0; i-- {
		if m := s.lines[i].Message; m == "destination is down" || m == "destination is back" {
			return m
		}
	}
	return ""
}

// TestWhatGoesOnIsSaidAtGrowingIntervals: an hour without renewals.
func TestWhatGoesOnIsSaidAtGrowingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		w := &world{T: t, store: store}
		log := &said{}
		opts := fourfold(&target{})
		opts.Logger = slog.New(log)
		var full atomic.Bool
		full.Store(true)
		opts.Leases = &lame{store.Leases(), func(gobridge.Partition) bool { return full.Load() }}
		defer w.run(w.open(store, opts))()
		w.after(3 * time.Second) // the first renewal may be a third of a term away
		if times, _ := log.of("leases cannot be renewed"); times != 1 {
			t.Errorf("in the first seconds it is said %d times, want once", times)
		}
		w.after(time.Hour)
		if times, most := log.of("leases cannot be renewed"); times < 8 || times > 20 || most < 1000 {
			t.Errorf("in an hour it is said %d times, with a count of up to %d", times, most)
		}
		before, _ := log.of("leases cannot be renewed")
		full.Store(false)
		w.after(time.Hour)
		full.Store(true)
		w.after(10 * time.Second)
		if after, _ := log.of("leases cannot be renewed"); after < before+1 {
			t.Error("an hour later it is no news")
		}
	})
}

// TestADestinationThatComesAndGoes: it is said now and then, and the last word is
// how it is.
func TestADestinationThatComesAndGoes(t *testing.T) {
	dest := &target{}
	log := &said{}
	events := &eventLog{}
	opts := one(bridge.Binding{Sender: dest, Retry: bridge.Retry{MaxBackoff: time.Second}})
	opts.Logger, opts.Observer = slog.New(log), events
	inWorld(t, opts, func(w *world) {
		up := func(context.Context, gobridge.Delivery) error { return nil }
		down := func(context.Context, gobridge.Delivery) error { return gobridge.Unavailable(errBoom) }
		const rounds = 200
		for i := range rounds {
			dest.answers(down)
			w.publishFrom("k", i+1, i+1)
			w.after(time.Second)
			dest.answers(up)
			w.after(3 * time.Second)
		}
		opened := len(events.of(bridge.EventOpened))
		times, most := log.of("destination is down")
		back, _ := log.of("destination is back")
		if opened < rounds || times > 20 || most < rounds/2 || back > times {
			t.Errorf("it went down %d times, which is said %d times with a count of up to %d; back is said %d times", opened, times, most, back)
		}
		dest.answers(down)
		w.publishFrom("k", rounds+1, rounds+1)
		w.after(time.Minute)
		if last := log.last(); last != "destination is down" {
			t.Errorf("it is down for a minute, and the last that was said is %q", last)
		}
		dest.answers(up)
		w.after(time.Minute)
		if last := log.last(); last != "destination is back" {
			t.Errorf("it is back for a minute, and the last that was said is %q", last)
		}
		w.wantOrder(dest, "k", rounds+1)
	})
}
