package fakedynamo

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// role says which parameter an expression was given as.
type role string

const (
	roleCondition    role = "ConditionExpression"
	roleUpdate       role = "UpdateExpression"
	roleKeyCondition role = "KeyConditionExpression"
	roleFilter       role = "FilterExpression"
	roleProjection   role = "ProjectionExpression"
)

// expression is a parsed expression of any role.
type expression struct {
	role       role
	names      []string // placeholders used
	values     []string
	condition  condition
	update     *update
	projection []path
	tops       []step // the top-level names it reads or writes
}

// expressions keeps parsed expressions: a store uses a few dozen over and over.
type expressions struct {
	parsed sync.Map // of role+text
	kept   atomic.Int64
}

const maxKept = 2000

func (c *expressions) parse(r role, text string) (*expression, error) {
	key := string(r) + text
	if found, ok := c.parsed.Load(key); ok {
		return found.(*expression), nil
	}
	x, err := parseExpression(r, text)
	if err != nil {
		return nil, validation("Invalid %s: %s", r, err.message)
	}
	if c.kept.Add(1) < maxKept {
		c.parsed.Store(key, x)
	}
	return x, nil
}

func parseExpression(r role, text string) (*expression, *syntaxError) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	x := &expression{role: r}
	switch r {
	case roleUpdate:
		x.update, err = p.update()
	case roleProjection:
		err = p.listed(func() *syntaxError {
			target, err := p.path()
			x.projection = append(x.projection, target)
			return err
		})
	default:
		x.condition, err = p.condition()
	}
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, err
	}
	x.names, x.values, x.tops = p.names, p.values, p.topLevel()
	return x, nil
}

// topLevel lists the names that begin a path.
func (p *parser) topLevel() []step {
	var out []step
	for i, t := range p.tokens {
		after := p.tokens[min(i+1, len(p.tokens)-1)]
		inner := i > 0 && p.tokens[i-1].mark(".")
		if !inner && (t.kind == tokenName || t.kind == tokenWord && !after.mark("(")) {
			out = append(out, step{name: t.text})
		}
	}
	return out
}

// bind checks the request's placeholders against its expressions: each used one
// is defined, each defined one is used.
func bind(names map[string]string, values item, parsed ...*expression) (*env, error) {
	e := &env{names: names, values: values}
	parsed = slices.DeleteFunc(parsed, func(x *expression) bool { return x == nil })
	if err := e.wellFormed(len(parsed) > 0); err != nil {
		return nil, err
	}
	for _, x := range parsed {
		for _, name := range x.names {
			if _, defined := names[name]; !defined {
				return nil, validation("Invalid %s: An expression attribute name used in the document path is not defined; attribute name: %s", x.role, name)
			}
		}
		for _, name := range x.values {
			if _, defined := values[name]; !defined {
				return nil, validation("Invalid %s: An expression attribute value used in expression is not defined; attribute value: %s", x.role, name)
			}
		}
	}
	for _, x := range parsed {
		if err := x.check(e); err != nil {
			return nil, validation("Invalid %s: %s", x.role, err.message)
		}
	}
	return e, e.allUsed(parsed)
}

func (e *env) wellFormed(expressions bool) error {
	for what, count := range map[string]int{"ExpressionAttributeNames": len(e.names), "ExpressionAttributeValues": len(e.values)} {
		given := what == "ExpressionAttributeNames" && e.names != nil || what == "ExpressionAttributeValues" && e.values != nil
		if given && !expressions {
			return validation("%s can only be specified when using expressions", what)
		}
		if given && count == 0 {
			return validation("%s must not be empty", what)
		}
	}
	for name := range e.names {
		if len(name) < 2 || name[0] != '#' {
			return validation(`ExpressionAttributeNames contains invalid key: Syntax error; key: "%s"`, name)
		}
	}
	for name := range e.values {
		if len(name) < 2 || name[0] != ':' {
			return validation(`ExpressionAttributeValues contains invalid key: Syntax error; key: "%s"`, name)
		}
	}
	return nil
}

func (x *expression) check(e *env) *syntaxError {
	switch {
	case x.update != nil:
		return x.update.check(e)
	case x.condition != nil:
		return x.condition.check(e)
	default:
		return e.distinct(x.projection)
	}
}

func (e *env) allUsed(parsed []*expression) error {
	var spare []string
	for name := range e.names {
		if !slices.ContainsFunc(parsed, func(x *expression) bool { return slices.Contains(x.names, name) }) {
			spare = append(spare, name)
		}
	}
	if spare != nil {
		sort.Strings(spare)
		return validation("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", strings.Join(spare, ", "))
	}
	for name := range e.values {
		if !slices.ContainsFunc(parsed, func(x *expression) bool { return slices.Contains(x.values, name) }) {
			spare = append(spare, name)
		}
	}
	if spare != nil {
		sort.Strings(spare)
		return validation("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", strings.Join(spare, ", "))
	}
	return nil
}

// project keeps what the projection names.
func (x *expression) project(e *env, it item) item {
	out := item{}
	for _, p := range x.projection {
		if v := e.resolve(it, p); v != nil {
			e.place(out, p, v)
		}
	}
	return out
}

// place puts a value under the names of its path.
func (e *env) place(out item, p path, v *value) {
	name := e.name(p[0])
	if len(p) == 1 {
		out[name] = v
		return
	}
	fields := item{}
	if inner := out[name]; inner != nil {
		fields = inner.fields.clone()
	}
	e.place(fields, p[1:], v)
	out[name] = &value{kind: kindMap, fields: fields}
}

// projectable refuses projections of list elements, which no outbox needs.
func (x *expression) projectable() error {
	for _, p := range x.projection {
		for _, s := range p {
			if s.name == "" {
				return unsupported("list indexes in a ProjectionExpression")
			}
		}
	}
	return nil
}
