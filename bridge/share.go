package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"gobridge"
)

// serves is a binding as a member serves it: over how many partitions.
type serves struct {
	route, binding string
	of             int
}

func (s serves) partitions() []gobridge.Partition {
	out := make([]gobridge.Partition, s.of)
	for i := range out {
		out[i] = gobridge.NewShard(s.route, s.binding, i, s.of)
	}
	return out
}

// member is a process that shares in the partitions of the bindings it serves.
type member struct {
	owner  string
	serves []serves
}

// share returns which member each partition falls to. Holders says which member
// has a partition now; one that is not there is with nobody, or with nobody who
// is to keep it. Everybody who calls it with the same arguments gets the same answer,
// and where everybody has the share that falls to him, the answer is that.
func share(members []member, holders map[gobridge.Partition]string) map[gobridge.Partition]string {
	target := map[gobridge.Partition]string{}
	load := map[string]int{}
	for _, g := range groups(members) {
		g.assign(holders, load, target)
	}
	return target
}

// group is the partitions that exactly the same members serve.
type shareGroup struct {
	name       string
	owners     []string // sorted
	partitions []gobridge.Partition
}

func groups(members []member) []*shareGroup {
	who := map[serves][]string{}
	for _, m := range members {
		for _, s := range m.serves {
			if !slices.Contains(who[s], m.owner) {
				who[s] = append(who[s], m.owner)
			}
		}
	}
	byOwners := map[string]*shareGroup{}
	for s, owners := range who {
		slices.Sort(owners)
		name := strings.Join(owners, "\n")
		if byOwners[name] == nil {
			byOwners[name] = &shareGroup{name: name, owners: owners}
		}
		byOwners[name].partitions = append(byOwners[name].partitions, s.partitions()...)
	}
	out := make([]*shareGroup, 0, len(byOwners))
	for _, name := range slices.Sorted(maps.Keys(byOwners)) {
		slices.Sort(byOwners[name].partitions)
		out = append(out, byOwners[name])
	}
	return out
}

// assign says whom the partitions of the group fall to.
func (g *shareGroup) assign(holders map[gobridge.Partition]string, load map[string]int, target map[gobridge.Partition]string) {
	has := map[string][]gobridge.Partition{}
	var pool []gobridge.Partition
	for _, p := range g.partitions {
		if o := holders[p]; slices.Contains(g.owners, o) {
			has[o] = append(has[o], p)
		} else {
			pool = append(pool, p)
		}
	}
	room := g.quotas(has, load)
	for _, o := range g.owners {
		mine := has[o]
		slices.SortFunc(mine, func(a, b gobridge.Partition) int { return cmp.Compare(score(b, o), score(a, o)) })
		keep := min(room[o], len(mine))
		for _, p := range mine[:keep] {
			target[p] = o
		}
		room[o] -= keep
		pool = append(pool, mine[keep:]...)
	}
	slices.Sort(pool)
	for _, p := range pool {
		best := ""
		for _, o := range g.owners {
			if room[o] > 0 && (best == "" || score(p, o) > score(p, best)) {
				best = o
			}
		}
		target[p] = best
		room[best]--
	}
}

// quotas says how many partitions each owner is to have, and adds them to load.
//
// Who is to have one more than the others is who has that many, if anybody does.
// What those below have does not count: while partitions change hands it is
// another number in every look, and two owners would both take themselves for the
// one.
func (g *shareGroup) quotas(has map[string][]gobridge.Partition, load map[string]int) map[string]int {
	each, left := len(g.partitions)/len(g.owners), len(g.partitions)%len(g.owners)
	order := slices.Clone(g.owners)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(min(max(len(has[b]), each), each+1), min(max(len(has[a]), each), each+1)),
			cmp.Compare(load[a], load[b]),
			cmp.Compare(score(gobridge.Partition(g.name), b), score(gobridge.Partition(g.name), a)),
			strings.Compare(a, b))
	})
	out := map[string]int{}
	for i, o := range order {
		out[o] = each
		if i < left {
			out[o]++
		}
		load[o] += out[o]
	}
	return out
}

// score is how well a partition and an owner go together: the owner with the
// highest one is the one to have it (rendezvous hashing).
func score(p gobridge.Partition, owner string) uint64 {
	sum := sha256.Sum256([]byte(string(p) + "\x00" + owner))
	return binary.BigEndian.Uint64(sum[:8])
}
