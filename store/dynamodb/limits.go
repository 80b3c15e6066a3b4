package dynamodb

import "gobridge"

// limits follow from DynamoDB's: an item has at most 400 KB with the names of
// its attributes, a partition key 2,048 and a sort key 1,024 bytes, of which
// escaping may need three for one; a transaction has 100 items and 4 MB.
var limits = gobridge.Limits{
	MaxPartition:   340,
	MaxID:          256,
	MaxBinding:     64,
	MaxKey:         1024,
	MaxSubject:     4096,
	MaxContentType: 1024,
	MaxHeaders:     1000,
	MaxHeaderBytes: 64 << 10,
	MaxPayload:     340 << 10,
	MaxEnvelope:    350 << 10,
	MaxBindings:    50,
	MaxCallBytes:   3 << 20,
}

const (
	// maxText bounds an error or a reason that is kept; a longer one is cut.
	maxText = 8 << 10
	// maxLinks bounds the earlier records of its call that a record names.
	maxLinks = 24
	// maxWave bounds the records that are given their ages together.
	maxWave = 100

	// A transaction has at most 100 items and 4 MB, one item of which is the
	// fence row, and one may be an audit entry. One that needs more units than a partition of the table can give
	// at once would fail for ever.
	maxChunk      = 98
	maxChunkBytes = 3 << 20
	maxChunkUnits = 250
)

// Limits implements [gobridge.Outbox].
func (s *Store) Limits() gobridge.Limits {
	out := limits
	out.Retention = s.options.Retention
	out.MaxDead, out.MaxDeadBytes = s.options.MaxDead, s.options.MaxDeadBytes
	return out
}
