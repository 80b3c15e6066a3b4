// Package dynamodb keeps an outbox, dead letters, controls and leases in one
// DynamoDB table, for bridges that run on many machines.
//
// It has the whole contract of [gobridge.Store]. What differs from the other
// stores is what things cost: a claim of a partition in which no record has an
// ordering key reads the front of an index; as soon as one has a key, a claim
// reads the partition from end to end, strongly consistent, for nothing less can
// say that no older record of the key is left. docs/adr/0005 says why, and what
// every operation costs.
//
// The table is made by [EnsureTable] and checked by [CheckTable]; [Open] refuses
// a table that is not as it must be. All rows of a partition have one partition
// key: the records, and the fence row, which has the newest claim version, the
// counter that Seq comes from, the newest stamp and the figures of the partition.
package dynamodb
