package bridge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"gobridge"
)

// room is a set of members and who holds what, as the rule leaves it.
type shareRoom struct {
	*testing.T
	members []member
	holders map[gobridge.Partition]string
}

// settle applies the rule, and returns how many partitions went from one living
// member to another, and how many were with nobody.
func (r *shareRoom) settle() (moved, free int) {
	r.Helper()
	target := share(r.members, r.holders)
	alive := map[string]bool{}
	for _, m := range r.members {
		alive[m.owner] = true
	}
	for p, to := range target {
		switch from := r.holders[p]; {
		case !alive[from]:
			free++
		case from != to:
			moved++
		}
	}
	r.holders = target
	if again := share(r.members, maps.Clone(target)); !maps.Equal(again, target) {
		r.Error("with everybody at his share, something moves again")
	}
	return moved, free
}

// even checks that members who serve the same bindings have the same number of
// their partitions, give or take one.
func (r *shareRoom) even() {
	r.Helper()
	for _, g := range groups(r.members) {
		counts := map[string]int{}
		for _, p := range g.partitions {
			counts[r.holders[p]]++
		}
		least, most, sum := len(g.partitions), 0, 0
		for _, o := range g.owners {
			least, most, sum = min(least, counts[o]), max(most, counts[o]), sum+counts[o]
		}
		if most-least > 1 || sum != len(g.partitions) {
			r.Errorf("%d partitions are spread as %v over %q", len(g.partitions), counts, g.owners)
		}
	}
}

func TestShareMovesFew(t *testing.T) {
	of := []serves{{"orders", "crm", 16}, {"orders", "billing", 16}, {"loose", "lake", 1}, {"telemetry", "lake", 31}}
	const partitions = 64
	r := &shareRoom{T: t, holders: map[gobridge.Partition]string{}}
	for n := 1; n <= 6; n++ {
		r.members = append(r.members, member{fmt.Sprintf("p%d", n), of})
		moved, free := r.settle()
		r.even()
		switch {
		case n == 1 && free != partitions:
			t.Errorf("the first gets %d of %d", free, partitions)
		case n > 1 && moved != partitions/n:
			t.Errorf("with the %d. of them %d partitions move; %d must", n, moved, partitions/n)
		}
	}
	for n := 5; n >= 1; n-- {
		gone := r.members[0]
		had := 0
		for _, o := range r.holders {
			if o == gone.owner {
				had++
			}
		}
		r.members = r.members[1:]
		moved, free := r.settle()
		r.even()
		if moved != 0 || free != had {
			t.Errorf("of those who stay, %d partitions move; %d are free, the one that left had %d", moved, free, had)
		}
	}
}

// TestShareIsTheSameWhilePartitionsChangeHands: whenever somebody looks, what has
// moved by then must not change where the rest is to go, or it moves twice.
func TestShareIsTheSameWhilePartitionsChangeHands(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 300 {
		r := &shareRoom{T: t, holders: map[gobridge.Partition]string{}}
		of := []serves{{"a", "x", 1 + rng.IntN(20)}}
		if rng.IntN(2) == 0 {
			of = append(of, serves{"b", "y", 1 + rng.IntN(20)})
		}
		for i := range 2 + rng.IntN(5) {
			r.members = append(r.members, member{fmt.Sprintf("p%d-%d", i, rng.IntN(1000)), of})
			r.settle()
		}
		if rng.IntN(2) == 0 {
			r.members = r.members[1:]
		} else {
			r.members = append(r.members, member{"new", of})
		}
		target := share(r.members, r.holders)
		var moving []gobridge.Partition
		for p, o := range target {
			if r.holders[p] != o {
				moving = append(moving, p)
			}
		}
		for steps := 2 * len(moving); steps > 0; steps-- { // each is let go, and then taken
			p := moving[rng.IntN(len(moving))]
			if r.holders[p] == "" {
				r.holders[p] = target[p]
			} else if r.holders[p] != target[p] {
				delete(r.holders, p)
			}
			if now := share(r.members, r.holders); !maps.Equal(now, target) {
				t.Fatalf("with %v of %v moving, the share went from %v to %v", r.holders, moving, target, now)
			}
		}
	}
}

func TestShareOfDifferentBindings(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	all := []serves{{"a", "x", 4}, {"a", "y", 7}, {"b", "x", 1}, {"b", "y", 16}, {"c", "z", 3}}
	r := &shareRoom{T: t, holders: map[gobridge.Partition]string{"other/x/0": "somebody"}}
	for step := range 300 {
		if len(r.members) > 1 && rng.IntN(2) == 0 {
			r.members = slices.Delete(slices.Clone(r.members), 0, 1)
		} else {
			m := member{owner: fmt.Sprintf("p%d", step)}
			for _, s := range all {
				if rng.IntN(2) == 0 {
					m.serves = append(m.serves, s)
				}
			}
			r.members = append(r.members, m)
		}
		rng.Shuffle(len(r.members), func(i, j int) { r.members[i], r.members[j] = r.members[j], r.members[i] })
		r.settle()
		r.even()
		for p, o := range r.holders {
			i := slices.IndexFunc(r.members, func(m member) bool { return m.owner == o })
			if i < 0 || !slices.ContainsFunc(r.members[i].serves, func(s serves) bool { return slices.Contains(s.partitions(), p) }) {
				t.Fatalf("%s falls to %q, which does not serve it", p, o)
			}
		}
	}
}

func TestMemberText(t *testing.T) {
	m := member{"host-1-ABC", []serves{{"orders", "crm", 1}, {"telemetry", "lake", 64}}}
	got := parseMember(m.text())
	if got.owner != m.owner || !slices.Equal(got.serves, m.serves) {
		t.Errorf("%+v came back as %+v", m, got)
	}
	odd := parseMember("x\n\norders\na/b\na/b x\na/b 0\na/b -1\na/b 99999999\nc/d 2\nsomething new")
	if odd.owner != "x" || !slices.Equal(odd.serves, []serves{{"c", "d", 2}}) {
		t.Errorf("what a newer version wrote was read as %+v", odd)
	}
}
