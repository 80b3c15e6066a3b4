package fakedynamo

import (
	"slices"
	"strconv"
	"strings"
)

// update is a parsed update expression.
type update struct {
	set     []assignment
	remove  []path
	add     []change
	remover []change // DELETE
}

type assignment struct {
	target path
	term   term
}

type change struct {
	target path
	value  string
}

// term is the right side of a SET: an operand, a function, or a sum.
type term struct {
	operand   operand
	function  string // "", if_not_exists, list_append, + or -
	arguments []term
}

// paths are all that the update writes to.
func (u *update) paths() []path {
	var out []path
	for _, a := range u.set {
		out = append(out, a.target)
	}
	out = append(out, u.remove...)
	for _, c := range u.add {
		out = append(out, c.target)
	}
	for _, c := range u.remover {
		out = append(out, c.target)
	}
	return out
}

func (p *parser) update() (*update, *syntaxError) {
	u := &update{}
	seen := map[string]bool{}
	for p.peek().kind != tokenEnd {
		word := strings.ToUpper(p.peek().text)
		if seen[word] {
			return nil, &syntaxError{`The "` + word + `" section can only be used once in an update expression;`}
		}
		seen[word] = true
		clause := map[string]func(*update) *syntaxError{
			"SET": p.setClause, "REMOVE": p.removeClause, "ADD": p.addClause, "DELETE": p.deleteClause,
		}[word]
		if clause == nil || p.peek().kind != tokenWord {
			return nil, p.unexpected()
		}
		p.next()
		if err := clause(u); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// listed reads parts separated by commas.
func (p *parser) listed(part func() *syntaxError) *syntaxError {
	for {
		if err := part(); err != nil {
			return err
		}
		if !p.accept(",") {
			return nil
		}
	}
}

func (p *parser) setClause(u *update) *syntaxError {
	return p.listed(func() *syntaxError {
		target, err := p.path()
		if err != nil {
			return err
		}
		if err := p.expect("="); err != nil {
			return err
		}
		t, err := p.sum()
		u.set = append(u.set, assignment{target, t})
		return err
	})
}

func (p *parser) removeClause(u *update) *syntaxError {
	return p.listed(func() *syntaxError {
		target, err := p.path()
		u.remove = append(u.remove, target)
		return err
	})
}

func (p *parser) addClause(u *update) *syntaxError    { return p.changes(&u.add) }
func (p *parser) deleteClause(u *update) *syntaxError { return p.changes(&u.remover) }

func (p *parser) changes(into *[]change) *syntaxError {
	return p.listed(func() *syntaxError {
		target, err := p.path()
		if err != nil {
			return err
		}
		if p.peek().kind != tokenValue {
			return p.unexpected()
		}
		name := p.next().text
		p.usedValue(name)
		*into = append(*into, change{target, name})
		return nil
	})
}

func (p *parser) sum() (term, *syntaxError) {
	left, err := p.term()
	if err != nil {
		return term{}, err
	}
	operator := p.peek()
	if !operator.mark("+") && !operator.mark("-") {
		return left, nil
	}
	p.next()
	right, err := p.term()
	return term{function: operator.text, arguments: []term{left, right}}, err
}

func (p *parser) term() (term, *syntaxError) {
	name := p.functionAhead()
	if name == "" {
		o, err := p.operand()
		return term{operand: o}, err
	}
	if name != "if_not_exists" && name != "list_append" {
		return term{}, &syntaxError{"Invalid function name; function: " + name}
	}
	p.at += 2
	if p.depth++; p.depth > maxNesting {
		return term{}, &syntaxError{"The expression contains too many nested functions"}
	}
	defer func() { p.depth-- }()
	out := term{function: name}
	err := p.listed(func() *syntaxError {
		argument, err := p.term()
		out.arguments = append(out.arguments, argument)
		return err
	})
	if err != nil {
		return term{}, err
	}
	if len(out.arguments) != 2 {
		return term{}, &syntaxError{"Incorrect number of operands for operator or function; operator or function: " + name + ", number of operands: " + strconv.Itoa(len(out.arguments))}
	}
	if name == "if_not_exists" && out.arguments[0].operand.path == nil {
		return term{}, &syntaxError{"Operator or function requires a document path; operator or function: if_not_exists"}
	}
	return out, p.expect(")")
}

// check refuses operands of a type that cannot work, whatever the item holds.
func (u *update) check(e *env) *syntaxError {
	for _, a := range u.set {
		if err := a.term.check(e); err != nil {
			return err
		}
	}
	for _, c := range u.add {
		if v := e.values[c.value]; v.kind != kindNumber && !v.isSet() {
			return wrongOperand("ADD", v.kind)
		}
	}
	for _, c := range u.remover {
		if v := e.values[c.value]; !v.isSet() {
			return wrongOperand("DELETE", v.kind)
		}
	}
	return e.distinct(u.paths())
}

func (t term) check(e *env) *syntaxError {
	wanted := map[string]kind{"+": kindNumber, "-": kindNumber, "list_append": kindList}[t.function]
	for _, argument := range t.arguments {
		if v := argument.operand.literal(e); v != nil && wanted != "" && v.kind != wanted {
			return wrongOperand(t.function, v.kind)
		}
		if err := argument.check(e); err != nil {
			return err
		}
	}
	return nil
}

var (
	errNoAttribute = "The provided expression refers to an attribute that does not exist in the item"
	errOperandType = "An operand in the update expression has an incorrect data type"
	errBadPath     = "The document path provided in the update expression is invalid for update"
)

// eval computes a term on the item as it was before the update.
func (t term) eval(e *env, it item) (*value, error) {
	if t.function == "" {
		v := t.operand.eval(e, it)
		if v == nil {
			return nil, validation("%s", errNoAttribute)
		}
		return v, nil
	}
	if t.function == "if_not_exists" {
		if v := t.arguments[0].operand.eval(e, it); v != nil {
			return v, nil
		}
		return t.arguments[1].eval(e, it)
	}
	left, err := t.arguments[0].eval(e, it)
	if err != nil {
		return nil, err
	}
	right, err := t.arguments[1].eval(e, it)
	if err != nil {
		return nil, err
	}
	if t.function == "list_append" {
		if left.kind != kindList || right.kind != kindList {
			return nil, validation("%s", errOperandType)
		}
		return &value{kind: kindList, list: slices.Concat(left.list, right.list)}, nil
	}
	if left.kind != kindNumber || right.kind != kindNumber {
		return nil, validation("%s", errOperandType)
	}
	text, err := addNumbers(left.text, right.text, t.function == "-")
	return numberValue(text), err
}
