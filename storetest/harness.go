// Package storetest checks any [gobridge.Store] against the contract on its
// ports, rule by rule. Third parties run it on theirs:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Backend{Open: openMine})
//	}
//
// A case that fails prints what follows from the rule that it checks. [Model]
// adds random operations, compared with a plain model, from a seed that repeats
// them. [Faulty] makes a store whose calls fail, before or after they have
// happened, for tests of what is built on stores.
package storetest

import (
	"testing"
	"time"

	"gobridge"
)

// Backend is a store under test.
type Backend struct {
	// Open makes a new, empty database and returns a handle on it. It registers
	// the clean-up with tb, and there should check what the backend can check
	// of its own consistency.
	Open func(tb testing.TB, options Options) Database

	// ClaimScans declares that a claim reads the backlog of its partition, so
	// that the case on its cost does not apply.
	ClaimScans bool
}

// Database is an open, empty database.
type Database interface {
	// Store returns a handle. Each call returns another, as another process
	// would have it, with its own clock: now, or Options.Now when nil.
	// Handles are closed with the test.
	Store(tb testing.TB, now func() time.Time) gobridge.Store
}

// Snapshotter is a database that can go back to an earlier state, as restoring
// a backup does. For a database without it the case about restoring is skipped.
type Snapshotter interface {
	// Snapshot copies the database; restore brings the copy into a new one.
	Snapshot(tb testing.TB) (restore func(tb testing.TB) Database)
}

// Options are the settings that every backend has.
type Options struct {
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Retention is how long identities of ended records are kept.
	Retention time.Duration
	// DeadRetention is how long dead letters are kept.
	DeadRetention time.Duration
	// MaxDead and MaxDeadBytes bound the dead letters of a partition.
	MaxDead      int64
	MaxDeadBytes int64
	// StaleWindow frees claims that nobody says are held.
	StaleWindow time.Duration
	// MaxSkew is how far ahead of the clock an explicit CreatedAt may be.
	MaxSkew time.Duration
}
