package fakedynamo

// writeInput are the parameters of one write or condition check, alone or in a
// transaction.
type writeInput struct {
	TableName                           string
	Item                                item
	Key                                 item
	ConditionExpression                 *string
	UpdateExpression                    *string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           item
	ReturnValuesOnConditionCheckFailure string
}

type actionKind byte

const (
	actionPut actionKind = iota
	actionUpdate
	actionDelete
	actionCheck
)

// action is a checked writeInput.
type action struct {
	kind      actionKind
	table     *table
	key       string
	keyItem   item
	put       *record
	condition *expression
	update    *expression
	env       *env
	allOld    bool
}

// action checks what can be checked without the item. The caller holds the mutex.
func (s *Server) action(kind actionKind, in *writeInput) (*action, error) {
	a := &action{kind: kind}
	var err error
	if in.ConditionExpression != nil {
		if a.condition, err = s.expressions.parse(roleCondition, *in.ConditionExpression); err != nil {
			return nil, err
		}
	}
	if in.UpdateExpression != nil {
		if a.update, err = s.expressions.parse(roleUpdate, *in.UpdateExpression); err != nil {
			return nil, err
		}
	}
	if err := in.fits(kind); err != nil {
		return nil, err
	}
	switch in.ReturnValuesOnConditionCheckFailure {
	case "", "NONE":
	case "ALL_OLD":
		a.allOld = true
	default:
		return nil, validation("Value '%s' at 'returnValuesOnConditionCheckFailure' failed to satisfy constraint: Member must satisfy enum value set: [ALL_OLD, NONE]", in.ReturnValuesOnConditionCheckFailure)
	}
	if a.env, err = bind(in.ExpressionAttributeNames, in.ExpressionAttributeValues, a.condition, a.update); err != nil {
		return nil, err
	}
	if a.table, err = s.active(in.TableName); err != nil {
		return nil, err
	}
	return a, a.locate(in)
}

// fits refuses parameters that the kind doesn't have.
func (in *writeInput) fits(kind actionKind) error {
	if (kind == actionPut) != (in.Item != nil) || (kind == actionPut) == (in.Key != nil) {
		return validation("a put needs an Item and no Key, anything else a Key and no Item")
	}
	if kind != actionUpdate && in.UpdateExpression != nil {
		return validation("only an update has an UpdateExpression")
	}
	if kind == actionCheck && in.ConditionExpression == nil {
		return validation("Value null at 'transactItems.member.conditionCheck.conditionExpression' failed to satisfy constraint: Member must not be null")
	}
	return nil
}

func (a *action) locate(in *writeInput) error {
	schema := a.table.schema
	if a.kind == actionPut {
		if err := a.table.checkStored(in.Item); err != nil {
			return err
		}
		a.put = schema.record(in.Item)
		a.key = a.put.key
		return nil
	}
	if err := schema.checkKey(in.Key); err != nil {
		return err
	}
	a.key, a.keyItem = schema.itemKey(in.Key), in.Key
	if a.update == nil {
		return nil
	}
	for _, p := range a.update.update.paths() {
		if name := a.env.name(p[0]); schema.has(name) {
			return validation("One or more parameter values were invalid: Cannot update attribute %s. This attribute is part of the key", name)
		}
	}
	return nil
}

// evaluate says what the action makes of the item, or that its condition fails.
func (a *action) evaluate(before *record) (*record, error) {
	if a.condition != nil && !a.condition.condition.eval(a.env, before.itemOrNil()) {
		if a.allOld {
			return nil, conditionFailed(before.itemOrNil())
		}
		return nil, conditionFailed(nil)
	}
	switch a.kind {
	case actionPut:
		return a.put, nil
	case actionDelete:
		return nil, nil
	case actionCheck:
		return before, nil
	}
	old := a.keyItem
	if before != nil {
		old = before.item
	}
	if a.update == nil {
		return a.table.schema.record(old), nil
	}
	updated, err := a.update.update.apply(a.env, old)
	if err != nil {
		return nil, err
	}
	if err := a.table.checkIndexKeys(updated); err != nil {
		return nil, err
	}
	after := &record{item: updated, key: a.key, size: updated.size()}
	if after.size > maxItem {
		return nil, validation("Item size to update has exceeded the maximum allowed size")
	}
	return after, nil
}

// lockKey names an item across tables.
type lockKey struct {
	table *table
	key   string
}

func (a *action) lock() lockKey { return lockKey{a.table, a.key} }
