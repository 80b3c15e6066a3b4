package gobridge

import "context"

// Quieter is a store that can tell cheaply where there is nothing to do, so that
// nobody pays for claims that find nothing. Optional.
type Quieter interface {
	// Quiet returns those of the partitions in which nothing is pending or claimed.
	// It may be a moment behind, and wrong after a crash: who relies on it asks every
	// second or so, and claims now and then all the same.
	Quiet(ctx context.Context, partitions ...Partition) ([]Partition, error)
}
