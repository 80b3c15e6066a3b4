package fakedynamo

import (
	"cmp"
	"slices"
	"time"
)

// projection says what an index shows.
type projection struct {
	kind string // ALL, KEYS_ONLY, INCLUDE
	also []string
}

// index is a global secondary index.
type index struct {
	name       string
	projection projection
	space      *space
	created    time.Time
	waits      int // DescribeTable calls until it is active
	deleting   bool
	lag        lag
}

// table is a table and its indexes. The server's mutex guards it.
type table struct {
	name        string
	definitions []attributeDefinition
	schema      keySchema
	base        *space
	indexes     []*index
	billing     string
	throughput  *throughputInput
	created     time.Time
	waits       int
	deleting    bool
	protected   bool
	ttl         string
	ttlChanged  time.Time
	replica     *index // what eventually consistent reads see, nil if that is the table
	misses      int    // DescribeTable calls that don't find it yet
	regions     []replicaDescription
	consistency string
}

func (t *table) index(name string) *index {
	at := slices.IndexFunc(t.indexes, func(x *index) bool { return x.name == name })
	if at < 0 {
		return nil
	}
	return t.indexes[at]
}

// entry is what the index shows of a record; nil if it isn't in the index.
func (t *table) entry(x *index, r *record) *record {
	if r == nil {
		return nil
	}
	for _, k := range x.space.schema.attributes() {
		if r.item[k.name] == nil {
			return nil
		}
	}
	if x.projection.kind == "ALL" {
		return r
	}
	shown := item{}
	for _, s := range []keySchema{t.schema, x.space.schema} {
		for _, k := range s.attributes() {
			shown[k.name] = r.item[k.name]
		}
	}
	for _, name := range x.projection.also {
		if v := r.item[name]; v != nil {
			shown[name] = v
		}
	}
	return &record{item: shown, key: r.key, size: shown.size()}
}

// checkIndexKeys refuses index key attributes of the wrong type or size.
func (t *table) checkIndexKeys(it item) error {
	for _, x := range t.indexes {
		for _, k := range x.space.schema.attributes() {
			v := it[k.name]
			if v == nil || t.schema.has(k.name) {
				continue
			}
			err := k.check(v, "Type mismatch for Index Key "+k.name+" Expected: "+string(k.kind)+" Actual: "+string(v.kind)+" IndexName: "+x.name)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkStored refuses an item that the table cannot hold.
func (t *table) checkStored(it item) error {
	if err := t.schema.checkItem(it); err != nil {
		return err
	}
	if err := t.checkIndexKeys(it); err != nil {
		return err
	}
	if it.size() > maxItem {
		return validation("Item size has exceeded the maximum allowed size")
	}
	return nil
}

// store makes after what the table holds for the key; indexes follow, at once or
// when their lag lets them.
func (s *Server) store(t *table, key string, after *record, effects []effect) {
	before := t.base.shown[key]
	if before == nil && after == nil {
		return
	}
	t.base.set(key, after)
	public := t.publicKey(cmp.Or(after, before))
	for _, e := range effects {
		e.index.show(s, public, key, e.shown)
	}
	if t.replica != nil {
		t.replica.show(s, public, key, after)
	}
}

// readable is what a read of the base table sees.
func (t *table) readable(consistent bool) *space {
	if consistent || t.replica == nil {
		return t.base
	}
	return t.replica.space
}

// replicate makes the copy that eventually consistent reads see from now on.
func (t *table) replicate() *index {
	if t.replica == nil {
		t.replica = &index{space: newSpace(t.schema, false), projection: projection{kind: "ALL"}}
		for key, r := range t.base.shown {
			t.replica.space.set(key, r)
		}
	}
	return t.replica
}

// publicKey is a record's key as tests name it.
func (t *table) publicKey(r *record) Key {
	return t.schema.publicKey(r.item)
}

func (s keySchema) publicKey(it item) Key {
	var k Key
	if v := it[s.hash.name]; v != nil {
		k.Partition = v.text
	}
	if v := it[s.sort.name]; v != nil {
		k.Sort = v.text
	}
	return k
}

// itemKeyOf is the reverse of publicKey.
func (s keySchema) itemKeyOf(k Key) string {
	it := item{s.hash.name: {kind: s.hash.kind, text: k.Partition}}
	if s.sort.name != "" {
		it[s.sort.name] = &value{kind: s.sort.kind, text: k.Sort}
	}
	return s.itemKey(it)
}
