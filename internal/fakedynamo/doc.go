// Package fakedynamo is a DynamoDB in memory, for hermetic tests of what is built
// on DynamoDB. It speaks the JSON protocol over HTTP (Server.URL, http.Handler) and
// in process (Server.HTTPClient, with Endpoint as the base address), and is only
// as wide as an outbox needs.
//
// # Strict
//
// Expressions go through a real parser; numbers are decimals of 38 digits; keys are
// compared by their bytes; indexes are sorted and sparse; pages end at 1 MB before
// any filter; transactions have request tokens, conflicts and reasons; items, keys
// and transactions have DynamoDB's limits; every call is charged by its rules. What
// the fake does not do is refused with the error UnsupportedByFake, never ignored:
// an unknown operation or parameter, local secondary indexes, streams, replicas,
// imports, backups, PartiQL, legacy conditions (Expected, KeyConditions,
// AttributesToGet and the like), list indexes in projections, UPDATED_OLD and
// UPDATED_NEW of nested paths.
//
// # Hostile
//
// What no emulator shows can be switched on: indexes that lag item by item and out
// of order (HoldIndex, LagIndex); eventually consistent reads that are (the same, of
// Replicas); transactions that overlap and conflict, and that
// reads see a part of (Options.Overlap, Hooks.Prepared, Hooks.Applied,
// Hooks.Order); throttled tables, indexes and partitions (SetThroughput); lost
// answers, injected conflicts, throttles and errors (Hooks.Before, Schedule); tiny
// pages with writes between them (Options.PageItems, Options.PageBytes,
// Hooks.Page); tables and indexes that take their time (Options.Describes); a clock
// (Options.Now, Server.Advance); an older copy of a table (Snapshot, Restore).
//
// # Where DynamoDB leaves room
//
// The fake takes the harder reading: two condition checks of one item conflict; a
// transaction's 4 MB count the whole items, before or after, not the request; a
// BatchGetItem stops after 1 MB of one partition key; a full page has a
// LastEvaluatedKey even if nothing follows; a filter on an attribute that the index
// does not show is refused. GetItem sees all of a transaction or nothing. The
// package's README.md tells how it compares with other implementations.
package fakedynamo
