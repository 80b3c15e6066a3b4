package storetest

import (
	"gobridge"
)

func restoreCases() []testCase {
	return []testCase{
		{name: "RestoredBackupWorks", run: restoredBackupWorks, skip: takesNoSnapshots,
			why: "After a restore the lease's new version is above the fence's, and everything that the backup had is delivered."},
	}
}

func takesNoSnapshots(_ Backend, db Database) string {
	if _, ok := db.(Snapshotter); !ok {
		return "the backend takes no snapshots of itself (storetest.Snapshotter)"
	}
	return ""
}

func restoredBackupWorks(f *fixture) {
	f.kill("l", "dead")
	f.persistEach("k", "done", "claimed", "pending")
	f.claimExactly(5, 2, "done", "claimed")
	f.complete(5, "done")
	f.setControl(haltOf("halted"))
	f.persistEach("halted", "held up")
	restore := f.db.(Snapshotter).Snapshot(f.TB)

	// What happens after the backup is lost with the database.
	f.persistEach("k", "after")
	f.wantIDs(f.claim(9, 0))
	f.complete(5, "claimed")
	seq := f.get("pending").Seq

	g := *f
	g.db = restore(f.TB)
	g.store = g.db.Store(f.TB, f.clock.Now)
	fence := g.stats(part).Fence
	if fence != token(5) {
		f.Fatalf("restored, the fence is %s, want %s", fence, token(5))
	}
	g.wantGone("after")
	g.wantState(gobridge.StateDelivered, "done")
	g.wantState(gobridge.StateClaimed, "claimed")
	g.wantStaleClaim(fence.Version-1, 10)
	// A lease that starts above the fence of the backup takes everything over.
	g.wantIDs(g.claim(fence.Version+1, 10), "claimed", "pending")
	g.wantCounters("taken over after the restore", "claimed", counters{2, 0, 1})
	g.wantErr("Persist of what the backup had", g.store.Persist(f.Context(), []gobridge.Record{record("done", key("k"))}),
		gobridge.ErrDuplicateRecord)
	g.persistEach("k", "again")
	if got := g.get("again").Seq; got <= seq {
		f.Fatalf("restored, the store gave Seq %d, not above the backup's %d", got, seq)
	}
	g.complete(fence.Version+1, "claimed", "pending")
	g.wantItems(g.redrive(gobridge.Filter{}), "dead")
	g.wantIDs(g.claim(fence.Version+2, 10), "again", "dead")
	g.clearControl(haltOf("halted"))
	g.wantIDs(g.claim(fence.Version+2, 10, "again", "dead"), "held up")
	// The database that was backed up goes on by itself.
	f.wantState(gobridge.StateDelivered, "claimed")
}
