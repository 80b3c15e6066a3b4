package fakedynamo

import (
	"encoding/binary"
	"hash/fnv"
)

// space is a table's items, or what an index shows of them, sorted by the key.
type space struct {
	schema     keySchema
	index      bool
	shown      map[string]*record // by item key
	partitions map[string]*ordered[*record]
	scan       ordered[string] // sortable hash keys in scan order
	bytes      int
}

func newSpace(schema keySchema, index bool) *space {
	return &space{schema: schema, index: index, shown: map[string]*record{}, partitions: map[string]*ordered[*record]{}}
}

// scanPlace is where a partition comes in a scan: by a hash of its key, as in
// DynamoDB, so that nobody relies on an order.
func scanPlace(hash string) place {
	h := fnv.New64a()
	_, _ = h.Write([]byte(hash)) // a hash's Write never fails
	return place{string(binary.BigEndian.AppendUint64(nil, h.Sum64())), hash}
}

// place is where a record stands inside its partition.
func (s *space) place(r *record) place {
	var p place
	if s.schema.sort.name != "" {
		p.sort = r.item[s.schema.sort.name].sortable()
	}
	if s.index {
		p.tie = r.key
	}
	return p
}

// set makes r what is shown for the item key; nil removes it.
func (s *space) set(key string, r *record) {
	if old := s.shown[key]; old != nil {
		s.drop(key, old)
	}
	if r == nil {
		return
	}
	hash := r.item[s.schema.hash.name].sortable()
	partition := s.partitions[hash]
	if partition == nil {
		partition = &ordered[*record]{}
		s.partitions[hash] = partition
		s.scan.set(scanPlace(hash), hash)
	}
	partition.set(s.place(r), r)
	s.shown[key] = r
	s.bytes += r.size
}

func (s *space) drop(key string, old *record) {
	hash := old.item[s.schema.hash.name].sortable()
	partition := s.partitions[hash]
	partition.remove(s.place(old))
	if partition.count == 0 {
		delete(s.partitions, hash)
		s.scan.remove(scanPlace(hash))
	}
	delete(s.shown, key)
	s.bytes -= old.size
}
