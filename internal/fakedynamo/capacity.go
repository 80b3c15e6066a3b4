package fakedynamo

import "math"

// units are read and write units of one request on one table, the base table and
// each index apart.
type units struct {
	read       float64
	write      float64
	indexRead  map[string]float64
	indexWrite map[string]float64
}

func (u *units) addIndexWrite(name string, n float64) {
	if n == 0 {
		return
	}
	if u.indexWrite == nil {
		u.indexWrite = map[string]float64{}
	}
	u.indexWrite[name] += n
}

func (u *units) addIndexRead(name string, n float64) {
	if u.indexRead == nil {
		u.indexRead = map[string]float64{}
	}
	u.indexRead[name] += n
}

func (u *units) add(o units) {
	u.read += o.read
	u.write += o.write
	for name, n := range o.indexRead {
		u.addIndexRead(name, n)
	}
	for name, n := range o.indexWrite {
		u.addIndexWrite(name, n)
	}
}

func (u *units) total() (read, write float64) {
	read, write = u.read, u.write
	for _, n := range u.indexRead {
		read += n
	}
	for _, n := range u.indexWrite {
		write += n
	}
	return read, write
}

// writeUnits is one unit for each begun KB, at least one.
func writeUnits(size int) float64 { return math.Max(1, math.Ceil(float64(size)/1024)) }

// readUnits is one unit for each begun 4 KB, at least one; half of that if the
// read is eventually consistent.
func readUnits(size int, consistent bool) float64 {
	n := math.Max(1, math.Ceil(float64(size)/4096))
	if !consistent {
		n /= 2
	}
	return n
}

// effect is what a write does to one index.
type effect struct {
	index      *index
	old, shown *record
}

// effects are the changes that turning before into after makes to the indexes.
func (t *table) effects(before, after *record) []effect {
	var out []effect
	for _, x := range t.indexes {
		old, shown := t.entry(x, before), t.entry(x, after)
		if old == nil && shown == nil || old != nil && shown != nil && old.item.equal(shown.item) {
			continue
		}
		out = append(out, effect{x, old, shown})
	}
	return out
}

// writeCost is what turning before into after costs: the larger of both on the
// base table (twice that in a transaction), and on each index 1 per KB of entry
// put, changed or removed, 2 if its key changes, nothing if it shows no change.
func writeCost(before, after *record, effects []effect, transactional bool) units {
	u := units{write: writeUnits(max(before.sizeOrZero(), after.sizeOrZero()))}
	if transactional {
		u.write *= 2
	}
	for _, e := range effects {
		switch {
		case e.old == nil:
			u.addIndexWrite(e.index.name, writeUnits(e.shown.size))
		case e.shown == nil:
			u.addIndexWrite(e.index.name, writeUnits(e.old.size))
		case !e.index.sameKey(e.old, e.shown):
			u.addIndexWrite(e.index.name, writeUnits(e.old.size)+writeUnits(e.shown.size))
		default:
			u.addIndexWrite(e.index.name, writeUnits(max(e.old.size, e.shown.size)))
		}
	}
	return u
}

// checkCost is what a condition costs that wrote nothing, because it failed or
// because it was only a check: the size of what is there.
func checkCost(before *record, transactional bool) units {
	u := units{write: writeUnits(before.sizeOrZero())}
	if transactional {
		u.write *= 2
	}
	return u
}

func (x *index) sameKey(a, b *record) bool {
	for _, k := range x.space.schema.attributes() {
		if !a.item[k.name].equal(b.item[k.name]) {
			return false
		}
	}
	return true
}

// consumed is the ConsumedCapacity of an answer.
type consumed struct {
	TableName              string
	CapacityUnits          float64
	ReadCapacityUnits      float64             `json:",omitempty"`
	WriteCapacityUnits     float64             `json:",omitempty"`
	Table                  *capacity           `json:",omitempty"`
	GlobalSecondaryIndexes map[string]capacity `json:",omitempty"`
}

type capacity struct {
	CapacityUnits      float64
	ReadCapacityUnits  float64 `json:",omitempty"`
	WriteCapacityUnits float64 `json:",omitempty"`
}

// report makes the ConsumedCapacity for a mode (NONE, TOTAL or INDEXES). Only
// transactions tell read and write units apart.
func (u *units) report(tableName, mode string, transactional bool) *consumed {
	if mode != "TOTAL" && mode != "INDEXES" {
		return nil
	}
	read, write := u.total()
	out := &consumed{TableName: tableName, CapacityUnits: read + write}
	if transactional {
		out.ReadCapacityUnits, out.WriteCapacityUnits = read, write
	}
	if mode != "INDEXES" {
		return out
	}
	out.Table = &capacity{CapacityUnits: u.read + u.write}
	if transactional {
		out.Table.ReadCapacityUnits, out.Table.WriteCapacityUnits = u.read, u.write
	}
	for _, part := range []struct {
		units map[string]float64
		write bool
	}{{u.indexRead, false}, {u.indexWrite, true}} {
		for name, n := range part.units {
			if out.GlobalSecondaryIndexes == nil {
				out.GlobalSecondaryIndexes = map[string]capacity{}
			}
			c := capacity{CapacityUnits: n}
			if transactional && part.write {
				c.WriteCapacityUnits = n
			}
			out.GlobalSecondaryIndexes[name] = c
		}
	}
	return out
}
