package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gobridge"
)

// owner is how a partition's lease stands.
type owner struct {
	lease gobridge.Lease
	known bool // there is one
	alive bool
}

// shortest and longest wait for a sign of life.
const (
	minWatch = 100 * time.Millisecond
	maxWatch = 3 * time.Second
)

// owners returns how the leases stand. One that has not been renewed lately by
// this process's clock may have an owner whose clock is wrong, so it is watched
// for longer than a living owner lets it be.
func (d *Desk) owners(ctx context.Context) (map[gobridge.Partition]owner, error) {
	out := map[gobridge.Partition]owner{}
	if d.leases == nil {
		return out, nil
	}
	leases, err := d.leases.Leases(ctx)
	if err != nil {
		return nil, err
	}
	now := d.now()
	var doubt []gobridge.Lease
	watch := minWatch
	for _, l := range leases {
		if strings.HasPrefix(string(l.Partition), "~") {
			continue // a process's own, no partition's
		}
		o := owner{lease: l, known: true}
		if since := now.Sub(l.RenewedAt); !l.Released && -l.Term < since && since < l.Term {
			o.alive = true
		} else if !l.Released {
			doubt = append(doubt, l)
			watch = max(watch, l.Term/2) // three renewals a term
		}
		out[l.Partition] = o
	}
	if len(doubt) == 0 {
		return out, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(min(watch, maxWatch)):
	}
	again, err := d.leases.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range again {
		if old := out[l.Partition]; !l.Released && l.Revision != old.lease.Revision {
			out[l.Partition] = owner{lease: l, known: true, alive: true}
		}
	}
	return out, nil
}

// ownership says who has each partition of a binding: those over which it is
// spread, and former ones that still hold records.
func (v *view) ownership(b *bindingOf) []Ownership {
	if v.desk.leases == nil {
		return nil
	}
	var partitions []gobridge.Partition
	for shard := range b.of() {
		partitions = append(partitions, gobridge.NewShard(b.Route, b.Binding, shard, b.of()))
	}
	for i := range b.partitions {
		if p := b.partitions[i].Partition; !slices.Contains(partitions, p) {
			partitions = append(partitions, p)
		}
	}
	out := make([]Ownership, len(partitions))
	for i, p := range partitions {
		o := v.owners[p]
		out[i] = Ownership{
			Partition: p, Version: o.lease.Token.Version, AcquiredAt: o.lease.AcquiredAt, RenewedAt: o.lease.RenewedAt,
			LastError: o.lease.LastError, LastErrorAt: o.lease.LastErrorAt,
		}
		if o.alive {
			out[i].Owner = o.lease.Token.Owner
		}
	}
	return out
}

// Share is a process and how many of a binding's partitions it drains.
type Share struct {
	Owner      string
	Partitions int
}

// Shares returns the processes that drain a binding, in the order of the first
// partition of each.
func (s *BindingStatus) Shares() []Share {
	var out []Share
	for _, o := range s.Owners {
		if o.Owner == "" {
			continue
		}
		i := slices.IndexFunc(out, func(s Share) bool { return s.Owner == o.Owner })
		if i < 0 {
			i, out = len(out), append(out, Share{Owner: o.Owner})
		}
		out[i].Partitions++
	}
	return out
}

// drained says in a part of a sentence who drains a binding, empty for nobody.
func (s *BindingStatus) drained() string {
	shares := s.Shares()
	switch len(shares) {
	case 0:
		return ""
	case 1:
		return shares[0].Owner + " drains it"
	}
	parts := make([]string, len(shares))
	for i, one := range shares {
		parts[i] = fmt.Sprintf("%s has %d", one.Owner, one.Partitions)
	}
	return fmt.Sprintf("%d processes share its %d partitions: %s", len(shares), len(s.Owners), strings.Join(parts, ", "))
}

// process returns the process ID in the name of an owner that gobridge has
// named itself (host-pid-random), empty for any other.
func process(owner string) string {
	rest, random, ok := cutLast(owner, "-")
	_, pid, ok2 := cutLast(rest, "-")
	if !ok || !ok2 || len(random) != 8 || pid == "" || strings.Trim(pid, "0123456789") != "" {
		return ""
	}
	return pid
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
