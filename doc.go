// Package gobridge moves messages through a durable outbox: what it has
// acknowledged reaches every destination at least once and in order within its
// ordering key, or rests in the dead letters with the reason.
//
// This package holds the nouns (records, ages, tokens, leases), the ports that
// stores and transports implement, and the errors. It imports the standard
// library and [gobridge/messaging] only. The engine is gobridge/bridge, the
// stores are gobridge/store/..., the transports gobridge/transport/... .
//
// The comments on the ports are the contract. gobridge/storetest and
// gobridge/leasetest check it, rule by rule, on any implementation.
//
// # Words
//
// An envelope is a message. A route has one source and one or more bindings; a
// binding is one destination. Every envelope becomes one [Record] per binding,
// in one [Partition], which is the unit of ownership and of order. The age of a
// record is (CreatedAt, Seq); older means smaller in this order. The head of an
// ordering key is its oldest record that has not ended.
package gobridge
