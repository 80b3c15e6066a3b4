//go:build race

package protocol

// raced says that the race detector is on. An exploration is one goroutine, in
// which it finds nothing and takes ten times as long: proofs are without faults then.
const raced = true
