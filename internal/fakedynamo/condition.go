package fakedynamo

import (
	"strconv"
	"strings"
)

// condition is a node of a condition, filter or key condition. eval sees the item
// as it is, nil if there is none; check refuses what no item could make right.
type condition interface {
	eval(e *env, it item) bool
	check(e *env) *syntaxError
}

// operand is a path, a value placeholder, or the size of a path.
type operand struct {
	path  path
	value string
	size  bool
}

func (o operand) eval(e *env, it item) *value {
	if o.value != "" {
		return e.values[o.value]
	}
	v := e.resolve(it, o.path)
	if v == nil || !o.size {
		return v
	}
	switch {
	case v.kind == kindString || v.kind == kindBinary:
		return numberValue(strconv.Itoa(len(v.text)))
	case v.kind == kindList:
		return numberValue(strconv.Itoa(len(v.list)))
	case v.kind == kindMap:
		return numberValue(strconv.Itoa(len(v.fields)))
	case v.isSet():
		return numberValue(strconv.Itoa(len(v.set)))
	}
	return nil
}

func (o operand) same(p operand, e *env) bool {
	if o.value != "" || p.value != "" || o.size != p.size || len(o.path) != len(p.path) {
		return o.value != "" && o.value == p.value
	}
	overlaps, _ := e.overlap(o.path, p.path)
	return overlaps
}

type (
	anyOf      struct{ terms []condition }
	allOf      struct{ terms []condition }
	negation   struct{ term condition }
	grouped    struct{ term condition }
	comparison struct {
		operator    string
		left, right operand
	}
	between    struct{ subject, low, high operand }
	membership struct {
		subject operand
		members []operand
	}
	predicate struct {
		function string
		args     []operand
	}
)

func (c anyOf) eval(e *env, it item) bool {
	for _, term := range c.terms {
		if term.eval(e, it) {
			return true
		}
	}
	return false
}

func (c allOf) eval(e *env, it item) bool {
	for _, term := range c.terms {
		if !term.eval(e, it) {
			return false
		}
	}
	return true
}

func (c negation) eval(e *env, it item) bool { return !c.term.eval(e, it) }
func (c grouped) eval(e *env, it item) bool  { return c.term.eval(e, it) }

func (c comparison) eval(e *env, it item) bool {
	left, right := c.left.eval(e, it), c.right.eval(e, it)
	if left == nil || right == nil {
		// An attribute that isn't there differs from every value.
		return c.operator == "<>" && (left != nil || right != nil)
	}
	switch c.operator {
	case "=":
		return left.equal(right)
	case "<>":
		return !left.equal(right)
	}
	order, ok := left.compare(right)
	if !ok {
		return false
	}
	switch c.operator {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	default:
		return order >= 0
	}
}

func (c between) eval(e *env, it item) bool {
	subject, low, high := c.subject.eval(e, it), c.low.eval(e, it), c.high.eval(e, it)
	if subject == nil || low == nil || high == nil {
		return false
	}
	below, ok1 := subject.compare(low)
	above, ok2 := subject.compare(high)
	return ok1 && ok2 && below >= 0 && above <= 0
}

func (c membership) eval(e *env, it item) bool {
	subject := c.subject.eval(e, it)
	for _, m := range c.members {
		if member := m.eval(e, it); subject != nil && member != nil && subject.equal(member) {
			return true
		}
	}
	return false
}

func (c predicate) eval(e *env, it item) bool {
	subject := c.args[0].eval(e, it)
	switch c.function {
	case "attribute_exists":
		return subject != nil
	case "attribute_not_exists":
		return subject == nil
	}
	argument := c.args[1].eval(e, it)
	if subject == nil || argument == nil {
		return false
	}
	switch c.function {
	case "attribute_type":
		return string(subject.kind) == argument.text
	case "begins_with":
		return subject.kind == argument.kind && strings.HasPrefix(subject.text, argument.text)
	default:
		return contains(subject, argument)
	}
}

func contains(subject, argument *value) bool {
	switch {
	case subject.kind == kindList:
		for _, element := range subject.list {
			if element.equal(argument) {
				return true
			}
		}
	case subject.isSet():
		for _, member := range subject.set {
			if argument.kind == subject.kind[:1] && member == argument.text {
				return true
			}
		}
	case subject.kind == kindString || subject.kind == kindBinary:
		return subject.kind == argument.kind && strings.Contains(subject.text, argument.text)
	}
	return false
}

func checkAll(e *env, terms []condition) *syntaxError {
	for _, term := range terms {
		if err := term.check(e); err != nil {
			return err
		}
	}
	return nil
}

func (c anyOf) check(e *env) *syntaxError    { return checkAll(e, c.terms) }
func (c allOf) check(e *env) *syntaxError    { return checkAll(e, c.terms) }
func (c negation) check(e *env) *syntaxError { return c.term.check(e) }
func (c grouped) check(e *env) *syntaxError  { return c.term.check(e) }

// descriptors are the type names used in messages about operands.
var descriptors = map[kind]string{
	kindString: "STRING", kindNumber: "NUMBER", kindBinary: "BINARY", kindBool: "BOOLEAN", kindNull: "NULL",
	kindList: "LIST", kindMap: "MAP", kindStringSet: "STRING_SET", kindNumberSet: "NUMBER_SET", kindBinarySet: "BINARY_SET",
}

func wrongOperand(operator string, k kind) *syntaxError {
	return &syntaxError{"Incorrect operand type for operator or function; operator or function: " + operator + ", operand type: " + descriptors[k]}
}

// literal is the value of a placeholder operand, nil for a path.
func (o operand) literal(e *env) *value {
	if o.value == "" {
		return nil
	}
	return e.values[o.value]
}

func notDistinct(operator string) *syntaxError {
	return &syntaxError{"The first operand must be distinct from the remaining operands for this operator or function; operator: " + operator}
}

// orderable refuses a literal that has no order.
func orderable(e *env, operator string, operands ...operand) *syntaxError {
	for _, o := range operands {
		if v := o.literal(e); v != nil && v.kind != kindString && v.kind != kindNumber && v.kind != kindBinary {
			return wrongOperand(operator, v.kind)
		}
	}
	return nil
}

func (c comparison) check(e *env) *syntaxError {
	if c.left.same(c.right, e) {
		return notDistinct(c.operator)
	}
	if c.operator == "=" || c.operator == "<>" {
		return nil
	}
	return orderable(e, c.operator, c.left, c.right)
}

func (c between) check(e *env) *syntaxError {
	if err := orderable(e, "BETWEEN", c.subject, c.low, c.high); err != nil {
		return err
	}
	low, high := c.low.literal(e), c.high.literal(e)
	if low == nil || high == nil {
		return nil
	}
	order, ok := low.compare(high)
	if !ok {
		return &syntaxError{"The BETWEEN operator requires same data type for lower and upper bounds"}
	}
	if order > 0 {
		return &syntaxError{"The BETWEEN operator requires upper bound to be greater than or equal to lower bound"}
	}
	return nil
}

func (c membership) check(e *env) *syntaxError {
	if len(c.members) > 100 {
		return &syntaxError{"The IN operator is provided with too many operands; number of operands: " + strconv.Itoa(len(c.members))}
	}
	for _, m := range c.members {
		if c.subject.same(m, e) {
			return notDistinct("IN")
		}
	}
	return nil
}

func (c predicate) check(e *env) *syntaxError {
	if len(c.args) == 1 {
		return nil
	}
	if c.args[0].same(c.args[1], e) {
		return notDistinct(c.function)
	}
	v := c.args[1].literal(e)
	switch c.function {
	case "attribute_type":
		if v == nil || v.kind != kindString {
			return wrongOperand(c.function, kindNull)
		}
		if _, known := descriptors[kind(v.text)]; !known {
			return &syntaxError{"Invalid attribute type name found; type: " + v.text}
		}
	case "begins_with":
		for _, o := range c.args {
			if v := o.literal(e); v != nil && v.kind != kindString && v.kind != kindBinary {
				return wrongOperand(c.function, v.kind)
			}
		}
	}
	return nil
}
