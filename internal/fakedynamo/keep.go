package fakedynamo

import (
	"maps"
	"strconv"
)

// Snapshot is a copy of a table's items at one moment.
type Snapshot struct {
	table string
	items map[string]*record
}

// Snapshot copies a table, as a backup does.
func (s *Server) Snapshot(tableName string) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{tableName, maps.Clone(s.mustTable(tableName).base.shown)}
}

// Restore puts the older copy in the place of what the table holds. Indexes show
// it at once, whatever their lag was; request tokens and the lag of Replicas are
// forgotten.
func (s *Server) Restore(snapshot *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mustTable(snapshot.table)
	t.base = newSpace(t.schema, false)
	for key, r := range snapshot.items {
		t.base.set(key, r)
	}
	t.replica = nil
	for _, x := range t.indexes {
		x.lag.pending, x.lag.due = nil, nil
		x.space = newSpace(x.space.schema, true)
		for key, r := range snapshot.items {
			if shown := t.entry(x, r); shown != nil {
				x.space.set(key, shown)
			}
		}
	}
	clear(s.tokens)
	s.tokenOrder = nil
}

func (s *Server) mustTable(name string) *table {
	t := s.tables[name]
	if t == nil {
		panic("fakedynamo: no table " + name)
	}
	return t
}

// ExpireItems deletes the items whose TTL has passed by the server's clock, which
// DynamoDB does some time within days; it says how many. Without this call they
// stay and are read and charged.
func (s *Server) ExpireItems(tableName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mustTable(tableName)
	if t.ttl == "" {
		return 0
	}
	now := strconv.FormatInt(s.now().Unix(), 10)
	deleted := 0
	for key, r := range t.base.shown {
		v := r.item[t.ttl]
		if v == nil || v.kind != kindNumber || compareNumbers(v.text, now) >= 0 {
			continue
		}
		s.store(t, key, nil, t.effects(r, nil))
		deleted++
	}
	return deleted
}

// Len is the number of items in a table.
func (s *Server) Len(tableName string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mustTable(tableName).base.shown)
}

// SetReplicas makes the table look like a global table with replicas in these
// Regions; consistency is EVENTUAL or STRONG. Nothing is replicated.
func (s *Server) SetReplicas(tableName, consistency string, regions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.mustTable(tableName)
	t.consistency, t.regions = consistency, nil
	for _, region := range regions {
		t.regions = append(t.regions, replicaDescription{region, "ACTIVE"})
	}
}
