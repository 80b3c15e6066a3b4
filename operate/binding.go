package operate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gobridge"
)

// bindingOf is a binding with the partitions that the store has of it.
type bindingOf struct {
	Route, Binding string
	plan           *PlannedBinding
	partitions     []gobridge.Stats
}

func (b *bindingOf) name() string { return b.Route + "/" + b.Binding }

// part names one of its partitions in a sentence about it, if it has several.
func (b *bindingOf) part(p gobridge.Partition) string {
	if len(b.partitions) > 1 {
		return "its partition " + string(p)
	}
	return "it"
}

// of is over how many partitions the binding is spread: as configured, or else
// as it was last.
func (b *bindingOf) of() int {
	if b.plan != nil {
		return max(1, b.plan.Partitions)
	}
	of, newest := 1, time.Time{}
	for _, s := range b.partitions {
		if s.NewestStamp.After(newest) {
			of, newest = s.Partition.Of(), s.NewestStamp
		}
	}
	return of
}

// dropFormer leaves out the empty partitions of another number, which nobody serves.
func (b *bindingOf) dropFormer() {
	of := b.of()
	b.partitions = slices.DeleteFunc(b.partitions, func(s gobridge.Stats) bool {
		return s.Partition.Of() != of && s.Pending+s.Claimed+s.Dead == 0
	})
}

func (b *bindingOf) sum(of func(*gobridge.Stats) int64) (n int64) {
	for i := range b.partitions {
		n += of(&b.partitions[i])
	}
	return n
}

func (b *bindingOf) held() int64 {
	return b.sum(func(s *gobridge.Stats) int64 { return s.Pending + s.Claimed + s.Dead })
}

// bindings returns those of the configuration, and those that the store holds
// records of or, without a configuration, knows; in order of their names. A
// partition of another form than gobridge's own is left out.
func (d *Desk) bindings(stats []gobridge.Stats) []*bindingOf {
	byName := map[string]*bindingOf{}
	get := func(route, binding string) *bindingOf {
		name := route + "/" + binding
		if byName[name] == nil {
			byName[name] = &bindingOf{Route: route, Binding: binding}
		}
		return byName[name]
	}
	plan := d.plan.Load()
	if plan != nil {
		for i := range plan.Bindings {
			p := &plan.Bindings[i]
			get(p.Route, p.Binding).plan = p
		}
	}
	for _, s := range stats {
		if route, binding, _, ok := s.Partition.Split(); ok {
			b := get(route, binding)
			b.partitions = append(b.partitions, s)
		}
	}
	var out []*bindingOf
	for _, b := range byName {
		if plan != nil && b.plan == nil && b.held() == 0 {
			continue // removed, and nothing is left of it
		}
		b.dropFormer()
		if len(b.partitions) == 0 {
			for shard := range b.of() {
				b.partitions = append(b.partitions, gobridge.Stats{Partition: gobridge.NewShard(b.Route, b.Binding, shard, b.of())})
			}
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b *bindingOf) int {
		return cmp.Or(strings.Compare(a.Route, b.Route), strings.Compare(a.Binding, b.Binding))
	})
	return out
}

// parked reports whether the configuration lets a removed binding's records wait.
func (d *Desk) parked(b *bindingOf) bool {
	names := []string{b.Route, b.name()}
	for _, s := range b.partitions {
		names = append(names, string(s.Partition))
	}
	plan := d.plan.Load()
	return plan != nil && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(plan.Parked, n) })
}
