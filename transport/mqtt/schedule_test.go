package mqtt

import (
	"errors"
	"testing"
	"time"
)

// TestSchedule bounds the waits between connections: they grow, have an end, begin
// anew after a connection that held, and are long after another client took over.
func TestSchedule(t *testing.T) {
	takenOver := &codeError{code: codeTakenOver}
	lost := errors.New("lost")
	var s schedule
	for i, ms := range []int{100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000} {
		want := time.Duration(ms) * time.Millisecond
		if got := s.failed(); got > want || got < want/2 {
			t.Errorf("failure %d: %s, want from %s to %s", i+1, got, want/2, want)
		}
	}
	for range 100 {
		if got := s.failed(); got > maxWait {
			t.Fatalf("%s, want at most %s", got, maxWait)
		}
	}
	if got := s.lost(steady+1, lost); got > minWait || s.failures != 0 {
		t.Errorf("after a connection that held: %s with %d failures", got, s.failures)
	}
	if got := s.lost(time.Second, lost); got > minWait || s.failures != 1 {
		t.Errorf("after a short one: %s with %d failures", got, s.failures)
	}
	s = schedule{}
	for i, seconds := range []int{5, 10, 20, 40, 60, 60} {
		want := time.Duration(seconds) * time.Second
		if got := s.lost(time.Hour, takenOver); got > want || got < want/2 {
			t.Errorf("taken over for the %d. time: %s, want from %s to %s", i+1, got, want/2, want)
		}
	}
}
