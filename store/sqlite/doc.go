// Package sqlite keeps the outbox in a SQLite database: a file of its own
// ([OpenFile]) or the service's own database ([Open]), where records can be
// persisted in the same transaction as the business row ([Store.PersistTx],
// [Store.InTx]).
//
// Everything that the store itself writes goes through one goroutine on one
// connection, and what is waiting when a transaction begins shares its commit,
// so that many producers cost one sync of the disk. Claims and settles go
// ahead of persists. Several processes may share one file: nothing that
// matters is kept in memory, and a locked database is waited for as long as the
// caller's context allows.
//
// # How a claim stays cheap
//
// A record is ready when it could be claimed by itself: it is pending and due
// (or claimed, and found stranded), is not halted, and has no ordering key or
// is the head of its key. One index lists the pending records of a partition
// with the ready ones apart; a claim takes the oldest ready ones and walks on
// along their keys. What is blocked behind a head, however much, is never
// looked at. Whoever ends, releases, delays, halts or inserts a record keeps
// the flag of its key's head right.
//
// A record that waits for a time has that time in due_at, and zero there once
// the time has been seen to pass. The flag then stands, whatever the clock says
// later.
//
// # Clean-up
//
// A record that has ended leaves the table of records. What the dedupe window
// needs goes to a table of its own and is purged by Sweep in small steps.
package sqlite
