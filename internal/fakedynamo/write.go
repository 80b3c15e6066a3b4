package fakedynamo

import "errors"

// singleWrite are the parameters of PutItem, UpdateItem and DeleteItem.
type singleWrite struct {
	writeInput
	ReturnValues                string
	ReturnConsumedCapacity      string
	ReturnItemCollectionMetrics string
}

type (
	putItem    struct{ singleWrite }
	updateItem struct{ singleWrite }
	deleteItem struct{ singleWrite }
)

func (in *writeInput) touch(add func(string, string, item)) {
	if in.Key != nil {
		add(in.TableName, "", in.Key)
		return
	}
	add(in.TableName, "", in.Item)
}

func (r *singleWrite) touches(add func(string, string, item)) { r.touch(add) }

func (r *putItem) run(s *Server, c *Call) (any, error)    { return r.write(s, c, actionPut) }
func (r *updateItem) run(s *Server, c *Call) (any, error) { return r.write(s, c, actionUpdate) }
func (r *deleteItem) run(s *Server, c *Call) (any, error) { return r.write(s, c, actionDelete) }

type writeResult struct {
	Attributes       item      `json:",omitzero"`
	ConsumedCapacity *consumed `json:",omitempty"`
}

func (r *singleWrite) write(s *Server, c *Call, kind actionKind) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showDue()
	a, err := s.action(kind, &r.writeInput)
	if err != nil {
		return nil, err
	}
	if !returnable(r.ReturnValues, kind) {
		return nil, validation("Return values set to invalid value")
	}
	before, after, err := s.perform(c, a)
	if err != nil {
		return nil, err
	}
	attributes, err := a.returned(r.ReturnValues, before, after)
	if err != nil {
		return nil, err
	}
	return writeResult{attributes, c.consumed(a.table.name, r.ReturnConsumedCapacity)}, nil
}

// perform does one write outside a transaction. The caller holds the mutex.
func (s *Server) perform(c *Call, a *action) (before, after *record, err error) {
	switch c.kind() {
	case Conflict:
		return nil, nil, transactionConflict()
	case Throttle:
		return nil, nil, a.table.throttled(c.fault.Index, true)
	}
	if s.running[a.lock()] != nil {
		return nil, nil, transactionConflict()
	}
	before = a.table.base.shown[a.key]
	after, err = a.evaluate(before)
	if err != nil {
		var failed *apiError
		if errors.As(err, &failed) && failed.code == "ConditionalCheckFailedException" {
			c.charge(a.table.name, checkCost(before, false))
		}
		return nil, nil, err
	}
	effects := a.table.effects(before, after)
	cost := writeCost(before, after, effects, false)
	if refused := s.admit(a.table.writeDemands(a.key, cost, effects)); refused != nil {
		return nil, nil, a.table.throttled(refused.index, true)
	}
	c.charge(a.table.name, cost)
	s.store(a.table, a.key, after, effects)
	c.Applied = true
	return before, after, nil
}

func returnable(values string, kind actionKind) bool {
	switch values {
	case "", "NONE", "ALL_OLD":
		return true
	case "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW":
		return kind == actionUpdate
	}
	return false
}

// returned are the attributes that ReturnValues asks for.
func (a *action) returned(values string, before, after *record) (item, error) {
	switch values {
	case "ALL_OLD":
		return before.itemOrNil(), nil
	case "ALL_NEW":
		return after.item, nil
	case "UPDATED_OLD", "UPDATED_NEW":
		if a.update == nil {
			return nil, nil
		}
		of := before.itemOrNil()
		if values == "UPDATED_NEW" {
			of = after.item
		}
		return a.update.update.touched(a.env, of)
	}
	return nil, nil
}
