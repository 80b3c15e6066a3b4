// Package protocol is a model of how records are persisted, claimed, sent and
// settled by owners that crash, pause and lose answers, and an explorer that
// visits every state of it at small size.
//
// The model is what the port comments of the root package ask for, in two
// variants: a store whose calls are atomic (memory, SQLite), and one that reads
// record by record and writes in several transactions (DynamoDB). Each rule of
// the protocol can be taken out ([Setup].Without). With all rules nothing goes
// wrong in any state; without one of them something does, and the explorer has
// the shortest way there. So a change of the protocol is tried here first.
//
// What is modelled and what is not, and the traces: docs/protocol.md.
package protocol
