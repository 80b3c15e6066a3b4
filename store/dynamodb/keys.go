package dynamodb

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"gobridge"
	"gobridge/internal/percent"
)

// The table's keys and its index. ClaimIndex has the table's partition key and
// claim_sort, which only records have that have not ended or are dead letters.
const (
	attrPK        = "PK"
	attrSK        = "SK"
	attrClaimSort = "claim_sort"
	attrTTL       = "ttl"
	claimIndex    = "ClaimIndex"
)

// Partition and sort keys. Names and IDs in them are escaped, so that no two
// meet, whatever bytes they have: '#' separates and never stands in an escaped
// one.
const (
	partitionPrefix = "P#"
	recordPrefix    = "OUTBOX#"
	fenceSK         = "FENCE"

	// The rows that list what there is.
	partitionsPK = "PARTITIONS"
	controlsPK   = "CONTROLS"
	controlPref  = "CONTROL#"
	revisionSK   = "REVISION"
	leasesPK     = "LEASES"
	bellPK       = "BELL"
	bellSK       = "BELL"
)

func escape(s string) string { return percent.Encode(s, "#") }

func partitionKey(p gobridge.Partition) string { return partitionPrefix + escape(string(p)) }

func recordKey(envelopeID, binding string) string {
	return recordPrefix + escape(envelopeID) + "#" + escape(binding)
}

// parseKeys is the way back: it returns the identity of a record's keys.
func parseKeys(pk, sk string) (gobridge.Ref, error) {
	id, binding, ok := strings.Cut(strings.TrimPrefix(sk, recordPrefix), "#")
	if !ok || !strings.HasPrefix(pk, partitionPrefix) || !strings.HasPrefix(sk, recordPrefix) {
		return gobridge.Ref{}, fmt.Errorf("keys %q and %q are not those of a record", pk, sk)
	}
	var parts [3]string
	for i, part := range [...]string{pk[len(partitionPrefix):], id, binding} {
		var err error
		if parts[i], err = percent.Decode(part); err != nil {
			return gobridge.Ref{}, fmt.Errorf("keys %q and %q: %w", pk, sk, err)
		}
	}
	return gobridge.Ref{Partition: gobridge.Partition(parts[0]), EnvelopeID: parts[1], Binding: parts[2]}, nil
}

// The ranges of claim_sort within a partition.
const (
	liveRange = 'L' // pending and claimed
	deadRange = 'D'
)

// age is (CreatedAt in nanoseconds since 1970, Seq).
type age struct{ created, seq int64 }

// before reports whether a is older than b.
func (a age) before(b age) bool {
	if a.created != b.created {
		return a.created < b.created
	}
	return a.seq < b.seq
}

// claimSort is the sort key in the index: the range, then the age, so that
// DynamoDB's order of bytes is that of ages.
func claimSort(in byte, a age) []byte {
	out := make([]byte, 0, 17)
	out = append(out, in)
	out = binary.BigEndian.AppendUint64(out, uint64(a.created))
	return binary.BigEndian.AppendUint64(out, uint64(a.seq))
}

func parseClaimSort(b []byte) (age, error) {
	if len(b) != 17 {
		return age{}, fmt.Errorf("claim_sort has %d bytes, not 17", len(b))
	}
	return age{int64(binary.BigEndian.Uint64(b[1:])), int64(binary.BigEndian.Uint64(b[9:]))}, nil
}

// newNonce names one change of a row, so that whoever made it knows it again
// when the answer was lost.
func newNonce() string { return strconv.FormatUint(rand.Uint64(), 36) }
