package fakedynamo

import "encoding/json"

// maxPage is where a page of Query or Scan ends: with the item that reaches it.
const maxPage = 1 << 20

type query struct {
	TableName                 string
	IndexName                 string
	KeyConditionExpression    *string
	FilterExpression          *string
	ProjectionExpression      *string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues item
	Limit                     *int
	ScanIndexForward          *bool
	ExclusiveStartKey         item
	ConsistentRead            bool
	Select                    string
	ReturnConsumedCapacity    string
}

type pageResult struct {
	Items            []item `json:"-"` // nil if only counted
	Count            int
	ScannedCount     int
	LastEvaluatedKey item      `json:",omitzero"`
	ConsumedCapacity *consumed `json:",omitempty"`
}

func (r pageResult) encode() ([]byte, error) {
	rest, err := json.Marshal(r)
	if err != nil || r.Items == nil {
		return rest, err
	}
	out := appendItems(append(make([]byte, 0, len(rest)+sizeOf(r.Items)), `{"Items":`...), r.Items)
	return append(append(out, ','), rest[1:]...), nil
}

// sizeOf estimates the JSON of items.
func sizeOf(items []item) int {
	size := 0
	for _, it := range items {
		size += 16 + it.size()*3/2
	}
	return size
}

func appendItems(out []byte, items []item) []byte {
	out = append(out, '[')
	for i, it := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendFields(out, it)
	}
	return append(out, ']')
}

func (r *query) touches(add func(string, string, item)) { add(r.TableName, r.IndexName, nil) }

func (r *query) run(s *Server, c *Call) (any, error) {
	p, selected, err := r.read(s, c)
	if err != nil {
		return nil, err
	}
	return s.page(c, p, selected, r.TableName, r.ReturnConsumedCapacity), nil
}

// page answers with a page that was read; the mutex is free by then.
func (s *Server) page(c *Call, p *page, selected selection, tableName, mode string) pageResult {
	items, count := selected.keep(p.records)
	if hook := s.hook().Page; hook != nil {
		hook(c, len(p.records), p.last != nil)
	}
	return pageResult{Items: items, Count: count, ScannedCount: len(p.records), LastEvaluatedKey: p.last, ConsumedCapacity: c.consumed(tableName, mode)}
}

func (r *query) read(s *Server, c *Call) (*page, selection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	var none selection
	if r.KeyConditionExpression == nil {
		return nil, none, validation("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	parsed, err := s.parseAll(map[role]*string{roleKeyCondition: r.KeyConditionExpression, roleFilter: r.FilterExpression, roleProjection: r.ProjectionExpression})
	if err != nil {
		return nil, none, err
	}
	e, err := bind(r.ExpressionAttributeNames, r.ExpressionAttributeValues, parsed[roleKeyCondition], parsed[roleFilter], parsed[roleProjection])
	if err != nil {
		return nil, none, err
	}
	target, err := s.target(r.TableName, r.IndexName, r.ConsistentRead)
	if err != nil {
		return nil, none, err
	}
	bounds, err := parsed[roleKeyCondition].keyRange(e, target.space.schema)
	if err != nil {
		return nil, none, err
	}
	if parsed[roleFilter] != nil {
		for _, top := range parsed[roleFilter].tops {
			if name := e.name(top); target.space.schema.has(name) {
				return nil, none, validation("Filter Expression can only contain non-primary key attributes: Primary key attribute: %s", name)
			}
		}
	}
	selected, err := s.selection(target.table, target.index, r.Select, parsed[roleFilter], parsed[roleProjection], e)
	if err != nil {
		return nil, none, err
	}
	p, err := s.newPage(target, r.Limit)
	if err != nil {
		return nil, none, err
	}
	if err := r.fill(p, target, bounds); err != nil {
		return nil, none, err
	}
	return p, selected, p.pay(s, c, bounds.hashed, r.ConsistentRead)
}

func (s *Server) parseAll(texts map[role]*string) (map[role]*expression, error) {
	out := map[role]*expression{}
	for _, r := range []role{roleKeyCondition, roleFilter, roleProjection} {
		text := texts[r]
		if text == nil {
			continue
		}
		x, err := s.expressions.parse(r, *text)
		if err != nil {
			return nil, err
		}
		out[r] = x
	}
	return out, nil
}

// target is what a Query or Scan reads: a table or one of its indexes.
type target struct {
	table *table
	index *index
	space *space
}

func (s *Server) target(tableName, indexName string, consistent bool) (target, error) {
	t, err := s.active(tableName)
	if err != nil {
		return target{}, err
	}
	if indexName == "" {
		return target{t, nil, t.readable(consistent)}, nil
	}
	x := t.index(indexName)
	switch {
	case x == nil:
		return target{}, validation("The table does not have the specified index: %s", indexName)
	case x.waits > 0 && !x.deleting:
		return target{}, validation("Cannot read from backfilling global secondary index: %s", indexName)
	case consistent:
		return target{}, validation("Consistent reads are not supported on global secondary indexes")
	}
	return target{t, x, x.space}, nil
}

func (t target) indexName() string {
	if t.index == nil {
		return ""
	}
	return t.index.name
}

// startPlace checks an ExclusiveStartKey and says where it stands.
func (t target) startPlace(start item) (hash string, at place, err error) {
	refused := validation("The provided starting key is invalid: The provided key element does not match the schema")
	want := map[string]keyAttribute{}
	for _, schema := range []keySchema{t.table.schema, t.space.schema} {
		for _, k := range schema.attributes() {
			want[k.name] = k
		}
	}
	if len(start) != len(want) {
		return "", place{}, refused
	}
	for name, k := range want {
		v := start[name]
		if v == nil || v.kind != k.kind || k.kind != kindNumber && v.text == "" {
			return "", place{}, refused
		}
	}
	at = t.space.place(&record{item: start, key: t.table.schema.itemKey(start)})
	return start[t.space.schema.hash.name].sortable(), at, nil
}

// page collects what one request reads.
type page struct {
	target  target
	records []*record
	size    int
	limit   int // records
	bytes   int
	last    item // where the next page begins, nil at the end
}

func (s *Server) newPage(t target, limit *int) (*page, error) {
	p := &page{target: t, bytes: maxPage, limit: s.options.PageItems}
	if s.options.PageBytes > 0 {
		p.bytes = s.options.PageBytes
	}
	if limit != nil {
		if *limit < 1 {
			return nil, validation("Value '%d' at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1", *limit)
		}
		if p.limit == 0 || *limit < p.limit {
			p.limit = *limit
		}
	}
	return p, nil
}

// take adds a record and reports whether the page has room for more. A page that
// is full says where it ended even if nothing follows, as DynamoDB does.
func (p *page) take(r *record) bool {
	p.records = append(p.records, r)
	p.size += r.size
	if len(p.records) != p.limit && p.size < p.bytes {
		return true
	}
	p.last = p.target.table.schema.keyOf(r.item)
	if p.target.index != nil {
		for name, v := range p.target.space.schema.keyOf(r.item) {
			p.last[name] = v
		}
	}
	return false
}

// pay charges the page: sizes are summed, then rounded.
func (p *page) pay(s *Server, c *Call, partition string, consistent bool) error {
	n := readUnits(p.size, consistent)
	cost := units{read: n}
	name := p.target.indexName()
	if name != "" {
		cost = units{}
		cost.addIndexRead(name, n)
	}
	if err := s.refuseRead(c, p.target.table, name, partition, n); err != nil {
		return err
	}
	c.charge(p.target.table.name, cost)
	return nil
}

// fill reads from the start key on, in the order asked for.
func (r *query) fill(p *page, t target, bounds *keyRange) error {
	forward := r.ScanIndexForward == nil || *r.ScanIndexForward
	var start *place
	if r.ExclusiveStartKey != nil {
		hash, at, err := t.startPlace(r.ExclusiveStartKey)
		if err != nil {
			return err
		}
		if hash != bounds.hashed || bounds.before(at.sort) || bounds.after(at.sort) {
			return validation("The provided starting key is outside query boundaries based on provided conditions")
		}
		start = &at
	}
	partition := t.space.partitions[bounds.hashed]
	if partition == nil {
		return nil
	}
	if forward {
		from := place{sort: bounds.from}
		if bounds.op == "" || bounds.op == "<" || bounds.op == "<=" {
			from = place{}
		}
		if start != nil {
			from = *start
		}
		partition.ascend(from, func(at place, rec *record) bool {
			if bounds.before(at.sort) || start != nil && at == *start {
				return true
			}
			return !bounds.after(at.sort) && p.take(rec)
		})
		return nil
	}
	partition.descend(start, func(at place, rec *record) bool {
		if bounds.after(at.sort) {
			return true
		}
		return !bounds.before(at.sort) && p.take(rec)
	})
	return nil
}
