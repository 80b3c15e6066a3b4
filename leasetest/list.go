package leasetest

import (
	"slices"

	"gobridge"
)

func listCases() []testCase {
	return []testCase{
		{
			name: "LeasesReturnsAllInOrder",
			why:  "owners share the partitions by what this returns: one that is missing is drained by nobody",
			run:  listAll,
		},
		{
			name: "LeasesOfNothing",
			why:  "the first process starts with none",
			run: func(f *fixture) {
				if leases := f.list(); len(leases) != 0 {
					f.Errorf("new leases: %+v", leases)
				}
			},
		},
		{
			name: "PartitionsAreApart",
			why:  "a partition whose name is mixed up with another's has two owners, or none",
			run:  partitionsApart,
		},
		{
			name: "LeasesSurviveReopening",
			why:  "versions that start again are below the outbox's fence, and an owner that lives would lose its lease",
			run:  reopen, durable: true,
		},
	}
}

func listAll(f *fixture) {
	shuffled := slices.Clone(partitions)
	slices.Reverse(shuffled)
	want := map[gobridge.Partition]gobridge.Lease{}
	for i, p := range shuffled {
		ask := request("a")
		ask.Partition = p
		lease := f.acquire(ask)
		want[p] = lease
		if i%2 == 0 {
			f.release(lease)
			lease.Released = true
			want[p] = lease
		}
	}
	leases := f.another(0).list()
	var names []gobridge.Partition
	for _, lease := range leases {
		names = append(names, lease.Partition)
		w := want[lease.Partition]
		if lease.Token != w.Token || lease.Released != w.Released || lease.Term != w.Term {
			f.Errorf("Leases returned %+v, want %+v", lease, w)
		}
	}
	if !slices.Equal(names, partitions) {
		f.Errorf("Leases returned the partitions %q, want %q", names, partitions)
	}
}

func partitionsApart(f *fixture) {
	var leases []gobridge.Lease
	for i, p := range partitions {
		ask := gobridge.AcquireRequest{Partition: p, Owner: string(rune('a' + i)), Term: term, MinVersion: int64(100 * i)}
		leases = append(leases, f.acquire(ask))
	}
	f.release(leases[0])
	for _, was := range leases[1:] {
		ask := request("z")
		ask.Partition = was.Partition
		f.refused(ask, gobridge.ErrLeaseHeld)
	}
	for _, now := range f.list()[1:] {
		i := slices.Index(partitions, now.Partition)
		if i < 0 || !same(now, leases[i]) {
			f.Errorf("%q has %+v, acquired was %+v", now.Partition, now, leases[max(i, 0)])
		}
	}
}

func reopen(f *fixture) {
	held := f.acquire(request("a"))
	f.renew(held)
	ask := request("a")
	ask.Partition = "orders/mail/1"
	ask.MinVersion = 41
	released := f.acquire(ask)
	f.release(released)
	before := f.list()

	f.db = f.db.(Reopener).Reopen(f.TB)
	f.handle = f.another(0)
	if after := f.list(); !slices.EqualFunc(before, after, same) {
		f.Errorf("leases after reopening: %+v, before: %+v", after, before)
	}
	f.refused(request("b"), gobridge.ErrLeaseHeld)
	if got := f.renew(held); len(got) != 1 || got[0].Token != held.Token {
		f.Errorf("Renew after reopening returned %+v, held was %+v", got, held)
	}
	ask.MinVersion = 0
	above(f, f.acquire(ask), released.Token.Version)
}
