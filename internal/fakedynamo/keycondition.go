package fakedynamo

import "strings"

// keyRange is what a key condition selects: one partition and a range of its sort
// key.
type keyRange struct {
	hash   *value
	op     string // "", =, <, <=, >, >=, BETWEEN, begins_with
	low    *value
	high   *value
	hashed string // sortable forms
	from   string
	to     string
}

// keyTerm is one comparison of a key condition.
type keyTerm struct {
	name string
	op   string
	args []operand
}

// keyRange reads a key condition against the key schema.
func (x *expression) keyRange(e *env, schema keySchema) (*keyRange, error) {
	terms, err := x.keyTerms(e)
	if err != nil {
		return nil, err
	}
	out := &keyRange{}
	for _, t := range terms {
		values := make([]*value, len(t.args))
		for i, a := range t.args {
			if values[i] = a.literal(e); values[i] == nil {
				return nil, validation("Invalid KeyConditionExpression: Only values are allowed on the right side; attribute: %s", t.name)
			}
		}
		switch {
		case t.name == schema.hash.name && t.op == "=" && out.hash == nil:
			out.hash = values[0]
			err = schema.hash.check(values[0], "Condition parameter type does not match schema type")
		case t.name == schema.hash.name && t.op != "=":
			return nil, validation("Query key condition not supported")
		case t.name == schema.sort.name && schema.sort.name != "" && out.op == "":
			out.op, out.low, out.high = t.op, values[0], values[len(values)-1]
			for _, v := range values {
				if err == nil {
					err = schema.sort.check(v, "Condition parameter type does not match schema type")
				}
			}
		case t.name == schema.hash.name || t.name == schema.sort.name:
			return nil, validation("KeyConditionExpressions must only contain one condition per key")
		default:
			return nil, validation("Query condition missed key schema element: %s", schema.missed(out))
		}
		if err != nil {
			return nil, err
		}
	}
	if out.hash == nil {
		return nil, validation("Query condition missed key schema element: %s", schema.hash.name)
	}
	return out.prepared(), nil
}

func (s keySchema) missed(r *keyRange) string {
	if r.hash == nil || s.sort.name == "" {
		return s.hash.name
	}
	return s.sort.name
}

func (r *keyRange) prepared() *keyRange {
	r.hashed = r.hash.sortable()
	if r.op != "" {
		r.from, r.to = r.low.sortable(), r.high.sortable()
	}
	return r
}

func (x *expression) keyTerms(e *env) ([]keyTerm, error) {
	var terms []keyTerm
	var walk func(c condition) error
	walk = func(c condition) error {
		var t keyTerm
		var subject operand
		switch c := c.(type) {
		case grouped:
			return walk(c.term)
		case allOf:
			for _, term := range c.terms {
				if err := walk(term); err != nil {
					return err
				}
			}
			return nil
		case comparison:
			subject, t.op, t.args = c.left, c.operator, []operand{c.right}
			if c.operator == "<>" {
				return validation("Invalid operator used in KeyConditionExpression: <>")
			}
		case between:
			subject, t.op, t.args = c.subject, "BETWEEN", []operand{c.low, c.high}
		case predicate:
			subject, t.op, t.args = c.args[0], c.function, c.args[1:]
			if c.function != "begins_with" {
				return validation("Invalid operator used in KeyConditionExpression: %s", c.function)
			}
		case anyOf:
			return validation("Invalid operator used in KeyConditionExpression: OR")
		case negation:
			return validation("Invalid operator used in KeyConditionExpression: NOT")
		default:
			return validation("Invalid operator used in KeyConditionExpression: IN")
		}
		if len(subject.path) != 1 || subject.size {
			return validation("Invalid KeyConditionExpression: a condition begins with the name of a key attribute")
		}
		t.name = e.name(subject.path[0])
		terms = append(terms, t)
		return nil
	}
	if err := walk(x.condition); err != nil {
		return nil, err
	}
	if len(terms) > 2 {
		return nil, validation("Conditions can be of length 1 or 2 only")
	}
	return terms, nil
}

// before reports whether the sort key comes before the range, after whether it
// comes after it.
func (r *keyRange) before(sort string) bool {
	switch r.op {
	case "=", ">=", "BETWEEN", "begins_with":
		return sort < r.from
	case ">":
		return sort <= r.from
	}
	return false
}

func (r *keyRange) after(sort string) bool {
	switch r.op {
	case "=", "<=":
		return sort > r.to
	case "BETWEEN":
		return sort > r.to
	case "<":
		return sort >= r.to
	case "begins_with":
		return sort > r.from && !strings.HasPrefix(sort, r.from)
	}
	return false
}
