package memory_test

import (
	"context"
	"testing"
	"time"

	"gobridge"
	"gobridge/leasetest"
	"gobridge/messaging"
	"gobridge/store/memory"
	"gobridge/storetest"
)

var (
	_ gobridge.Store      = (*memory.Store)(nil)
	_ gobridge.Notifier   = (*memory.Store)(nil)
	_ gobridge.Leaser     = (*memory.Store)(nil)
	_ gobridge.LeaseStore = (*memory.Leases)(nil)
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Backend{Open: func(_ testing.TB, options storetest.Options) storetest.Database {
		return storeDatabase{memory.New(memory.Options(options))}
	}})
}

// storeDatabase makes a store a database for storetest.
type storeDatabase struct{ store *memory.Store }

func (d storeDatabase) Store(_ testing.TB, now func() time.Time) gobridge.Store {
	return d.store.Handle(now)
}

func (d storeDatabase) Snapshot(testing.TB) func(testing.TB) storetest.Database {
	copied := d.store.Snapshot()
	return func(testing.TB) storetest.Database { return storeDatabase{copied.Snapshot()} }
}

func TestLeases(t *testing.T) {
	leasetest.Run(t, leasetest.Backend{Open: func(testing.TB) leasetest.Database { return leaseDatabase{memory.NewLeases(nil)} }})
}

// leaseDatabase makes leases a database for leasetest.
type leaseDatabase struct{ leases *memory.Leases }

func (d leaseDatabase) Leases(_ testing.TB, now func() time.Time) gobridge.LeaseStore {
	return d.leases.Handle(now)
}

func record(p gobridge.Partition, id, key string) gobridge.Record {
	return gobridge.Record{Partition: p, Binding: "b", Envelope: messaging.Envelope{ID: id, OrderingKey: key, Payload: []byte(id)}}
}

func TestSnapshotIsIndependentAndComplete(t *testing.T) {
	ctx := context.Background()
	const p = gobridge.Partition("r/b/0")
	store := memory.New(memory.Options{})
	token := gobridge.Token{Owner: "a", Version: 7}
	must(t, store.Persist(ctx, []gobridge.Record{record(p, "1", "k"), record(p, "2", "k"), record(p, "3", "")}))
	claimed, err := store.Claim(ctx, gobridge.ClaimRequest{Partition: p, Token: token, Limit: 1})
	must(t, err)
	must(t, store.SetControl(ctx, gobridge.Control{Kind: gobridge.Halt, Route: "r", Binding: "b", EnvelopeID: "3"}))
	if _, err := store.Leases().Acquire(ctx, gobridge.AcquireRequest{Partition: p, Owner: "a", Term: time.Second}); err != nil {
		t.Fatal(err)
	}

	copied := store.Snapshot()
	must(t, store.Complete(ctx, token, []gobridge.Completion{{Ref: claimed[0].Ref()}}))
	stats, err := copied.Stats(ctx)
	must(t, err)
	if len(stats) != 1 || stats[0].Pending != 2 || stats[0].Claimed != 1 || stats[0].Fence != token || stats[0].LastSeq != 3 {
		t.Errorf("figures of the copy: %+v", stats)
	}
	leases, err := copied.Leases().Leases(ctx)
	must(t, err)
	if len(leases) != 0 {
		t.Errorf("the copy has leases: %v", leases)
	}
	again, err := copied.Claim(ctx, gobridge.ClaimRequest{Partition: p, Token: gobridge.Token{Owner: "b", Version: 8}, Limit: 10})
	must(t, err)
	if len(again) != 2 || again[0].Envelope.ID != "1" || again[1].Envelope.ID != "2" {
		t.Errorf("claimed from the copy: %v; want the two of the key, the third being halted", again)
	}
}

func TestNotifyNamesThePartitionOnlyThroughItsOwnHandle(t *testing.T) {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	var own, other []gobridge.Partition
	stopOwn := store.Notify(func(p gobridge.Partition) { own = append(own, p) })
	stopOther := store.Handle(nil).Notify(func(p gobridge.Partition) { other = append(other, p) })
	must(t, store.Persist(ctx, []gobridge.Record{record("r/b/0", "1", ""), record("r/b/1", "1", ""), record("r/b/0", "2", "")}))
	stopOwn()
	stopOther()
	must(t, store.Persist(ctx, []gobridge.Record{record("r/b/0", "3", "")}))
	if len(own) != 2 || own[0] != "r/b/0" || own[1] != "r/b/1" {
		t.Errorf("own handle was told %q", own)
	}
	if len(other) != 1 || other[0] != "" {
		t.Errorf("other handle was told %q", other)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
