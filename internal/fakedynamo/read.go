package fakedynamo

import (
	"slices"
	"strconv"
	"strings"
)

// partitionOf is the sortable hash key in an item key.
func partitionOf(itemKey string) string {
	length, rest, _ := strings.Cut(itemKey, ":")
	n, _ := strconv.Atoi(length)
	return rest[:n]
}

type getItem struct {
	TableName                string
	Key                      item
	ConsistentRead           bool
	ProjectionExpression     *string
	ExpressionAttributeNames map[string]string
	ReturnConsumedCapacity   string
}

type getResult struct {
	Item             item      `json:",omitzero"`
	ConsumedCapacity *consumed `json:",omitempty"`
}

func (r *getItem) touches(add func(string, string, item)) { add(r.TableName, "", r.Key) }

func (r *getItem) run(s *Server, c *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	shape, err := s.shape(r.ProjectionExpression, r.ExpressionAttributeNames)
	if err != nil {
		return nil, err
	}
	t, err := s.active(r.TableName)
	if err != nil {
		return nil, err
	}
	if err := t.schema.checkKey(r.Key); err != nil {
		return nil, err
	}
	key := t.schema.itemKey(r.Key)
	found := t.readable(r.ConsistentRead).shown[key]
	if r.ConsistentRead || t.replica == nil {
		found = s.serializable(t, key)
	}
	cost := units{read: readUnits(found.sizeOrZero(), r.ConsistentRead)}
	if refused := s.refuseRead(c, t, "", partitionOf(key), cost.read); refused != nil {
		return nil, refused
	}
	c.charge(t.name, cost)
	return getResult{shape.of(found.itemOrNil()), c.consumed(t.name, r.ReturnConsumedCapacity)}, nil
}

// refuseRead throttles a read, by a fault or for lack of throughput.
func (s *Server) refuseRead(c *Call, t *table, index, partition string, n float64) error {
	if c.kind() == Throttle {
		return t.throttled(index, false)
	}
	if s.admit([]demand{{resource{t.name, index}, partition, n, false}}) != nil {
		return t.throttled(index, false)
	}
	return nil
}

// shape is a projection with its names; without an expression it keeps all.
type shape struct {
	expression *expression
	env        *env
}

func (s *Server) shape(text *string, names map[string]string) (shape, error) {
	if text == nil {
		_, err := bind(names, nil)
		return shape{}, err
	}
	x, err := s.expressions.parse(roleProjection, *text)
	if err != nil {
		return shape{}, err
	}
	if err := x.projectable(); err != nil {
		return shape{}, err
	}
	e, err := bind(names, nil, x)
	return shape{x, e}, err
}

func (p shape) of(it item) item {
	if p.expression == nil || it == nil {
		return it
	}
	return p.expression.project(p.env, it)
}

type transactGetItems struct {
	TransactItems []struct {
		Get *struct {
			TableName                string
			Key                      item
			ProjectionExpression     *string
			ExpressionAttributeNames map[string]string
		}
	}
	ReturnConsumedCapacity string
}

type transactGetResult struct {
	Responses        []getResult
	ConsumedCapacity []*consumed `json:",omitempty"`
}

func (r *transactGetItems) touches(add func(string, string, item)) {
	for _, t := range r.TransactItems {
		if t.Get != nil {
			add(t.Get.TableName, "", t.Get.Key)
		}
	}
}

func (r *transactGetItems) run(s *Server, c *Call) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	if n := len(r.TransactItems); n == 0 || n > maxTransactItems {
		return nil, validation("1 validation error detected: Value at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to 100 and greater than or equal to 1")
	}
	out := transactGetResult{Responses: []getResult{}}
	reasons := make([]reason, len(r.TransactItems))
	seen := map[lockKey]bool{}
	failed, bytes := false, 0
	for i, g := range r.TransactItems {
		if g.Get == nil {
			return nil, validation("Value null at 'transactItems.member.get' failed to satisfy constraint: Member must not be null")
		}
		shape, err := s.shape(g.Get.ProjectionExpression, g.Get.ExpressionAttributeNames)
		if err != nil {
			return nil, err
		}
		t, err := s.active(g.Get.TableName)
		if err != nil {
			return nil, err
		}
		if err := t.schema.checkKey(g.Get.Key); err != nil {
			return nil, err
		}
		at := lockKey{t, t.schema.itemKey(g.Get.Key)}
		if seen[at] {
			return nil, validation("Transaction request cannot include multiple operations on one item")
		}
		seen[at] = true
		found := t.base.shown[at.key]
		bytes += found.sizeOrZero()
		cost := units{read: 2 * readUnits(found.sizeOrZero(), true)}
		if why := s.refuseTransactGet(c, t, at, cost, i, len(reasons)); why != nil {
			reasons[i], failed = *why, true
		} else {
			reasons[i] = reason{Code: reasonNone}
		}
		c.charge(t.name, cost)
		out.Responses = append(out.Responses, getResult{Item: shape.of(found.itemOrNil())})
	}
	if bytes > maxTransactBytes {
		return nil, validation("Transaction request cannot include items whose aggregate size exceeds 4 MB: %d bytes", bytes)
	}
	if failed {
		for _, why := range reasons {
			c.Reasons = append(c.Reasons, why.Code)
		}
		return nil, cancelled(reasons)
	}
	out.ConsumedCapacity = c.consumedAll(r.ReturnConsumedCapacity)
	return out, nil
}

func (s *Server) refuseTransactGet(c *Call, t *table, at lockKey, cost units, i, n int) *reason {
	hit := c.fault != nil && c.fault.Item%n == i
	if hit && c.fault.Kind == Conflict || s.running[at] != nil {
		return conflictReason()
	}
	throttled := s.admit([]demand{{resource{t.name, ""}, partitionOf(at.key), cost.read, false}}) != nil
	if throttled || hit && c.fault.Kind == Throttle {
		code, message := t.throttleText("")
		return &reason{Code: code, Message: message}
	}
	return nil
}

// selection says what a Query or Scan returns of the records that it read.
type selection struct {
	filter *expression
	env    *env
	shape  shape
	count  bool
}

// selection checks Select, filter and projection against what the index shows.
func (s *Server) selection(t *table, x *index, choose string, filter, projection *expression, e *env) (selection, error) {
	out := selection{filter: filter, env: e, shape: shape{projection, e}}
	switch choose {
	case "", "ALL_PROJECTED_ATTRIBUTES":
		if choose != "" && x == nil {
			return out, validation("One or more parameter values were invalid: Select type ALL_PROJECTED_ATTRIBUTES is not supported for a table; it can only be used when querying using an index")
		}
	case "ALL_ATTRIBUTES":
		if x != nil && x.projection.kind != "ALL" {
			return out, validation("One or more parameter values were invalid: Select type ALL_ATTRIBUTES is not supported for global secondary index %s because its projection type is not ALL", x.name)
		}
	case "COUNT":
		out.count = true
	case "SPECIFIC_ATTRIBUTES":
		if projection == nil {
			return out, validation("One or more parameter values were invalid: Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES")
		}
	default:
		return out, validation("Value '%s' at 'select' failed to satisfy constraint: Member must satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]", choose)
	}
	if projection != nil && choose != "" && choose != "SPECIFIC_ATTRIBUTES" {
		return out, validation("Cannot specify the ProjectionExpression when choosing to get %s", choose)
	}
	if projection != nil {
		if err := projection.projectable(); err != nil {
			return out, err
		}
	}
	if x == nil || x.projection.kind == "ALL" {
		return out, nil
	}
	for _, expr := range []*expression{filter, projection} {
		if expr == nil {
			continue
		}
		for _, top := range expr.tops {
			if name := e.name(top); !x.shows(t, name) {
				return out, validation("One or more parameter values were invalid: Global secondary index %s does not project %s", x.name, name)
			}
		}
	}
	return out, nil
}

// shows reports whether the index has room for the attribute.
func (x *index) shows(t *table, name string) bool {
	return t.schema.has(name) || x.space.schema.has(name) || slices.Contains(x.projection.also, name)
}

// keep filters and shapes the records; this needs no lock.
func (p selection) keep(records []*record) (items []item, count int) {
	if !p.count {
		items = make([]item, 0, len(records))
	}
	for _, r := range records {
		if p.filter != nil && !p.filter.condition.eval(p.env, r.item) {
			continue
		}
		count++
		if !p.count {
			items = append(items, p.shape.of(r.item))
		}
	}
	return items, count
}
