package pause

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !For(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("a second took %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if For(ctx, time.Minute) || time.Since(began) != 2*time.Second {
			t.Errorf("it did not end with its context, but after %v", time.Since(began))
		}
	})
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		failures                int
		shortest, longest, want time.Duration
	}{
		{0, time.Second, time.Minute, time.Second},
		{1, time.Second, time.Minute, 2 * time.Second},
		{5, time.Second, time.Minute, 32 * time.Second},
		{6, time.Second, time.Minute, time.Minute},
		{math.MaxInt, time.Second, time.Minute, time.Minute},
		{30, time.Hour, 24 * time.Hour, 24 * time.Hour},
		{0, time.Minute, time.Second, time.Second},
		{3, 1, 1, 1},
	} {
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := Backoff(c.failures, c.shortest, c.longest)
			least, most = min(least, d), max(most, d)
		}
		if least < c.want/2 || most > c.want || c.want > 100 && most-least < c.want/4 {
			t.Errorf("%d failures of %v up to %v: %v to %v, want half to all of %v", c.failures, c.shortest, c.longest, least, most, c.want)
		}
	}
}
