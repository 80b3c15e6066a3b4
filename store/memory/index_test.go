package memory

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestIndexFindsWhatAScanFinds compares every search with a scan over the same
// records, while records come, go and change.
func TestIndexFindsWhatAScanFinds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	some := func() values {
		v := noValues()
		for range random.IntN(3) {
			v[random.IntN(attributes)] = random.Int64N(20)
		}
		return v
	}

	var x index
	var sorted []*record // by age
	for step := range 5000 {
		switch n := len(sorted); {
		case n == 0 || random.IntN(5) < 2:
			r := &record{}
			r.CreatedAt = time.Unix(random.Int64N(50), 0)
			r.Seq = int64(step)
			r.values = some()
			x.insert(r)
			sorted = append(sorted, r)
			slices.SortFunc(sorted, func(a, b *record) int {
				if a.age().before(b.age()) {
					return -1
				}
				return 1
			})
		case random.IntN(4) == 0:
			i := random.IntN(n)
			x.remove(sorted[i])
			sorted = slices.Delete(sorted, i, i+1)
		default:
			x.set(sorted[random.IntN(n)], some())
		}

		bounds := noBounds()
		for range random.IntN(3) {
			bounds[random.IntN(attributes)] = random.Int64N(20)
		}
		at := birth
		if len(sorted) > 0 && random.IntN(3) > 0 {
			at = sorted[random.IntN(len(sorted))].age()
		}
		var want *record
		for _, r := range sorted {
			if at.before(r.age()) && r.values.within(&bounds) {
				want = r
				break
			}
		}
		if got := x.next(at, &bounds); got != want {
			t.Fatalf("step %d: next after %v within %v found %v, a scan %v", step, at, bounds, got, want)
		}
	}
}

func TestCursorSurvivesOddNames(t *testing.T) {
	for _, a := range []age{birth, {0, 0}, {1772366400123456789, 42}} {
		p, b, err := parseCursor(formatCursor("r.1/b.2/\x00\xff", a))
		if err != nil || p != "r.1/b.2/\x00\xff" || a != b {
			t.Errorf("cursor of %v came back as %q %v, %v", a, p, b, err)
		}
	}
	for _, bad := range []string{"x", "!", "MQ", "MS4y"} {
		if _, _, err := parseCursor(bad); err == nil {
			t.Errorf("cursor %q was taken", bad)
		}
	}
}
