package bridge

import (
	"testing"
	"testing/synctest"
	"time"
)

func key(name string) keyID { return keyID{true, name} }

func testCircuit(t *testing.T, f func(t *testing.T, c *circuit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newCircuit(Retry{MinBackoff: time.Second, MaxBackoff: 5 * time.Minute}))
	})
}

func wantVerdict(t *testing.T, c *circuit, tick uint64, want verdict) {
	t.Helper()
	if got := c.judge("a", tick); got != want {
		t.Errorf("verdict on a is %d, want %d", got, want)
	}
}

func TestFailuresOfSeveralKeysOpenTheCircuit(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		c.fail(key("a"), "a", "boom")
		c.fail(key("a"), "a", "boom")
		if c.down(true) {
			t.Error("down with one key failing")
		}
		c.fail(key("b"), "b", "boom")
		if c.down(false) || !c.down(true) {
			t.Error("two keys are enough only when nothing else is under way")
		}
		c.fail(key("c"), "c", "boom")
		if !c.down(false) {
			t.Error("not down with three keys failing")
		}
	})
}

func TestASuccessThatBeganBeforeAFailureProvesNothing(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		before := c.start()
		c.fail(key("a"), "a", "boom")
		c.pass(key("g"), "g", before)
		c.fail(key("b"), "b", "boom")
		c.fail(key("c"), "c", "boom")
		if !c.down(false) {
			t.Error("not down: a send that began while all was well counted as a success after the failure")
		}
		c.pass(key("g"), "g", c.start())
		if c.down(true) {
			t.Error("down after a success")
		}
	})
}

func TestARecordThatFailsBetweenSuccessesIsAtFault(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		wantVerdict(t, c, c.fail(key("a"), "a", "boom"), unclear)
		wantVerdict(t, c, c.fail(key("a"), "a", "boom"), unclear)
		c.pass(key("g"), "g", c.start())
		time.Sleep(time.Hour)
		wantVerdict(t, c, c.fail(key("a"), "a", "boom"), own)
		if c.down(true) {
			t.Error("a record known to fail by itself says nothing of the destination")
		}
	})
}

func TestAKeysOwnSuccessesProveNothingAgainstIt(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		for range 5 {
			c.pass(key("a"), "earlier", c.start())
			wantVerdict(t, c, c.fail(key("a"), "a", "boom"), unclear)
		}
	})
}

func TestALoneRecordIsAtFaultOnlyIfAnotherGetsThroughAfterwards(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		c.pass(key("g"), "g-1", c.start())
		for range 5 { // the destination may have gone down right after
			wantVerdict(t, c, c.fail(key("a"), "a", "boom"), unclear)
		}
		c.pass(key("g"), "g-2", c.start())
		wantVerdict(t, c, c.fail(key("a"), "a", "boom"), own)
		wantVerdict(t, c, c.fail(key("a"), "a", "boom"), unclear)
	})
}

func TestProbesSlowDownAndStayBounded(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		if !c.trip("boom", 0) || c.trip("boom", 0) {
			t.Error("opens once")
		}
		for i := range 40 {
			_, at := c.state()
			pause := time.Until(at)
			most := min(maxProbe, time.Second<<min(i, 20))
			if pause > most || pause < most/2 {
				t.Errorf("pause %d is %s, want %s to %s", i, pause, most/2, most)
			}
			time.Sleep(pause)
			c.probeFailed()
		}
		c.trip("slow down", 100*time.Hour)
		if _, at := c.state(); time.Until(at) != maxRetryAfter {
			t.Errorf("left alone for %s, want the cap", time.Until(at))
		}
		if closed, openFor := c.pass(key("a"), "a", c.start()); !closed || openFor < time.Minute {
			t.Errorf("closed %v after %s", closed, openFor)
		}
	})
}

func TestBackoffIsBounded(t *testing.T) {
	for n := range 200 {
		for _, least := range []time.Duration{1, time.Second, 1 << 61} {
			if p := backoff(least, time.Hour, n); p < 0 || p > time.Hour {
				t.Errorf("backoff(%s, 1h, %d) = %s", least, n, p)
			}
		}
	}
}

func TestWhatWasUnderWayDoesNotEndAWaitThatWasAskedFor(t *testing.T) {
	testCircuit(t, func(t *testing.T, c *circuit) {
		before := c.start()
		c.trip("slow down", time.Hour)
		if closed, _ := c.pass(key("a"), "a", before); closed {
			t.Error("closed by a send that began before the destination asked for time")
		}
		if closed, _ := c.answered("b", before); closed {
			t.Error("closed by an answer to a send that began before")
		}
		if closed, _ := c.pass(key("a"), "a", c.start()); !closed {
			t.Error("not closed by a probe")
		}
	})
}
