package fakedynamo

import (
	"maps"
	"slices"
	"sync"
)

// OperationStats counts one operation.
type OperationStats struct {
	Calls           int
	Errors          map[string]int // by the error's name
	Reasons         map[string]int // of cancelled transactions, by code, None left out
	Cut             int
	ReadUnits       float64 // indexes included
	WriteUnits      float64
	IndexReadUnits  map[string]float64
	IndexWriteUnits map[string]float64
}

type observed struct {
	mu    sync.Mutex
	stats map[string]*OperationStats
	log   []Call
}

func (o *observed) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats, o.log = map[string]*OperationStats{}, nil
}

func newStats() *OperationStats {
	return &OperationStats{Errors: map[string]int{}, Reasons: map[string]int{},
		IndexReadUnits: map[string]float64{}, IndexWriteUnits: map[string]float64{}}
}

func (o *observed) record(c *Call, log bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	stats := o.stats[c.Operation]
	if stats == nil {
		stats = newStats()
		o.stats[c.Operation] = stats
	}
	stats.Calls++
	if c.Error != "" {
		stats.Errors[c.Error]++
	}
	for _, reason := range c.Reasons {
		if reason != reasonNone {
			stats.Reasons[reason]++
		}
	}
	if c.Cut {
		stats.Cut++
	}
	for _, u := range c.units {
		read, write := u.total()
		c.ReadUnits += read
		c.WriteUnits += write
		for name, n := range u.indexRead {
			stats.IndexReadUnits[name] += n
		}
		for name, n := range u.indexWrite {
			stats.IndexWriteUnits[name] += n
		}
	}
	stats.ReadUnits += c.ReadUnits
	stats.WriteUnits += c.WriteUnits
	if log {
		done := *c
		done.fault, done.units = nil, nil
		o.log = append(o.log, done)
	}
}

// Stats returns the counts of every operation called since New or ResetStats.
func (s *Server) Stats() map[string]OperationStats {
	s.observed.mu.Lock()
	defer s.observed.mu.Unlock()
	out := map[string]OperationStats{}
	for operation, stats := range s.observed.stats {
		copied := *stats
		copied.Errors, copied.Reasons = maps.Clone(stats.Errors), maps.Clone(stats.Reasons)
		copied.IndexReadUnits, copied.IndexWriteUnits = maps.Clone(stats.IndexReadUnits), maps.Clone(stats.IndexWriteUnits)
		out[operation] = copied
	}
	return out
}

// Total adds the counts of all operations up.
func (s *Server) Total() OperationStats {
	total := newStats()
	for _, stats := range s.Stats() {
		total.Calls += stats.Calls
		total.Cut += stats.Cut
		total.ReadUnits += stats.ReadUnits
		total.WriteUnits += stats.WriteUnits
		for _, pair := range []struct{ from, into map[string]int }{{stats.Errors, total.Errors}, {stats.Reasons, total.Reasons}} {
			for name, n := range pair.from {
				pair.into[name] += n
			}
		}
		for _, pair := range []struct{ from, into map[string]float64 }{{stats.IndexReadUnits, total.IndexReadUnits}, {stats.IndexWriteUnits, total.IndexWriteUnits}} {
			for name, n := range pair.from {
				pair.into[name] += n
			}
		}
	}
	return *total
}

// ResetStats forgets counts and call log.
func (s *Server) ResetStats() { s.observed.reset() }

// Calls is the call log in the order of the answers, if Options.Log is set.
func (s *Server) Calls() []Call {
	s.observed.mu.Lock()
	defer s.observed.mu.Unlock()
	return slices.Clone(s.observed.log)
}

// charge notes what the call costs on a table.
func (c *Call) charge(tableName string, u units) {
	if c.units == nil {
		c.units = map[string]*units{}
	}
	if c.units[tableName] == nil {
		c.units[tableName] = &units{}
	}
	c.units[tableName].add(u)
}

// consumed is the ConsumedCapacity for one table.
func (c *Call) consumed(tableName, mode string) *consumed {
	u := c.units[tableName]
	if u == nil {
		u = &units{}
	}
	transactional := c.Operation == "TransactWriteItems" || c.Operation == "TransactGetItems"
	return u.report(tableName, mode, transactional)
}

// consumedAll is the ConsumedCapacity of a request on several tables.
func (c *Call) consumedAll(mode string) []*consumed {
	var out []*consumed
	for _, name := range slices.Sorted(maps.Keys(c.units)) {
		if report := c.consumed(name, mode); report != nil {
			out = append(out, report)
		}
	}
	return out
}

// describe fills in what hooks and log see of a request.
func (s *Server) describe(c *Call, r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := r.(*transactWriteItems); ok {
		c.Token = t.ClientRequestToken
	}
	r.touches(func(tableName, index string, key item) {
		if !slices.Contains(c.Tables, tableName) {
			c.Tables = append(c.Tables, tableName)
		}
		c.Index = index
		if t := s.tables[tableName]; t != nil && key != nil {
			c.Keys = append(c.Keys, t.schema.publicKey(key))
		}
	})
}
