// Package bridge is the engine: routes that turn messages into records, the
// drainer that brings the records to their destinations, and the leases that
// say which process drains what.
//
// A [Bridge] is made by [New], and works while [Bridge.Run] does. Messages come
// in through [RouteHandle.Publish] or [RouteHandle.Accept], or by persisting
// [RouteHandle.Records] in a transaction of one's own.
//
// # Order
//
// Every binding of a route has its own partition, loop and circuit, so a slow
// or dead destination holds up nobody else. Within a binding, records of one
// ordering key are sent one after the other in ascending age; different keys,
// and records without one, go side by side. A record that fails stops its key
// until it is delivered, ended by policy or taken away by a person.
//
// # Whose fault a failure is
//
// Only failures for a record's own reasons count against [Retry].Attempts. A
// destination that is down spends nobody's attempts: its circuit opens, single
// records probe it, each time of another key, and the first that gets through
// closes it. A failure that says neither [gobridge.Permanent] nor
// [gobridge.Unavailable] is judged by what happens to the other keys:
//
//   - It is the record's own if a send of another key that began after it
//     succeeds, or one that began after an earlier failure of it has succeeded. Each
//     success tells of a record once.
//   - It is the destination's if three keys fail, or two and nothing else is
//     under way, with no success in between: the circuit opens.
//   - Otherwise nobody can tell: the record is tried again and again with a
//     backoff, its key waits, and no attempt is spent. This is so as long as
//     there is work of one key only: a poisoned record and a dead destination
//     look the same then. A person, or the next success of another key, decides.
//
// A record that gets Unavailable again, although another key got through since it
// got that before, keeps nobody else waiting: it is tried again with a backoff, its
// key waits, and no attempt is spent.
//
// A record without an ordering key counts as a key of its own.
package bridge
