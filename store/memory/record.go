package memory

import (
	"bytes"
	"maps"

	"gobridge"
)

// record is a stored record and its place in the partition's index. Payload
// and headers never change once stored, so copies may share them.
type record struct {
	gobridge.Record

	// settled is the token whose holder ended or released the record, as long
	// as that is the last thing that happened to it. Settling again in the same
	// way with it is success: it was the answer that got lost.
	settled gobridge.Token

	node
}

// identity is a record's identity within its partition.
type identity struct{ envelopeID, binding string }

func (r *record) identity() identity { return identity{r.Envelope.ID, r.Binding} }

// age returns the record's place in the order of its partition.
func (r *record) age() age { return age{nanos(r.CreatedAt), r.Seq} }

// size counts what bounds of bytes count.
func (r *record) size() int64 { return int64(len(r.Envelope.Payload) + r.Envelope.Headers.Size()) }

// own returns a copy whose payload and headers nobody else has.
func own(r gobridge.Record) gobridge.Record {
	r.Envelope.Payload = bytes.Clone(r.Envelope.Payload)
	r.Envelope.Headers = maps.Clone(r.Envelope.Headers)
	return r
}

// strip drops what an ended record does not keep.
func (r *record) strip() {
	r.Envelope.Payload = nil
	r.Envelope.Headers = nil
}

// age is (CreatedAt, Seq).
type age struct{ created, seq int64 }

// before reports whether a is older than b.
func (a age) before(b age) bool {
	if a.created != b.created {
		return a.created < b.created
	}
	return a.seq < b.seq
}

// matches reports whether r, in a partition that matches, matches the rest of a
// filter.
func (r *record) matches(f *gobridge.Filter) bool {
	item := r.BulkItem()
	return f.Matches(&item, r.State)
}
