package fakedynamo

import "strconv"

// condition reads terms joined by OR, the weakest of the operators.
func (p *parser) condition() (condition, *syntaxError) {
	if p.depth++; p.depth > maxNesting {
		return nil, &syntaxError{"The expression contains too many nested parentheses"}
	}
	defer func() { p.depth-- }()
	terms, err := p.joined("OR", func() (condition, *syntaxError) {
		terms, err := p.joined("AND", p.negatable)
		if err != nil || len(terms) == 1 {
			return first(terms), err
		}
		return allOf{terms}, nil
	})
	if err != nil || len(terms) == 1 {
		return first(terms), err
	}
	return anyOf{terms}, nil
}

func first(terms []condition) condition {
	if len(terms) == 0 {
		return nil
	}
	return terms[0]
}

func (p *parser) joined(keyword string, term func() (condition, *syntaxError)) ([]condition, *syntaxError) {
	var terms []condition
	for {
		c, err := term()
		if err != nil {
			return nil, err
		}
		terms = append(terms, c)
		if !p.acceptKeyword(keyword) {
			return terms, nil
		}
	}
}

func (p *parser) negatable() (condition, *syntaxError) {
	negated := false
	for p.acceptKeyword("NOT") {
		negated = !negated
	}
	c, err := p.primary()
	if err != nil || !negated {
		return c, err
	}
	return negation{c}, nil
}

func (p *parser) primary() (condition, *syntaxError) {
	if p.accept("(") {
		c, err := p.condition()
		if err != nil {
			return nil, err
		}
		if err := p.expect(")"); err != nil {
			return nil, err
		}
		if _, twice := c.(grouped); twice {
			return nil, &syntaxError{"The expression has redundant parentheses;"}
		}
		return grouped{c}, nil
	}
	if name := p.functionAhead(); name != "" && name != "size" {
		return p.predicate(name)
	}
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	switch t := p.peek(); {
	case t.is("BETWEEN"):
		p.next()
		return p.between(left)
	case t.is("IN"):
		p.next()
		return p.membership(left)
	case t.kind == tokenMark:
		switch t.text {
		case "=", "<>", "<", "<=", ">", ">=":
			p.next()
			right, err := p.operand()
			if err != nil {
				return nil, err
			}
			return comparison{t.text, left, right}, nil
		}
	}
	return nil, p.unexpected()
}

func (p *parser) between(subject operand) (condition, *syntaxError) {
	low, err := p.operand()
	if err != nil {
		return nil, err
	}
	if !p.acceptKeyword("AND") {
		return nil, p.unexpected()
	}
	high, err := p.operand()
	if err != nil {
		return nil, err
	}
	return between{subject, low, high}, nil
}

func (p *parser) membership(subject operand) (condition, *syntaxError) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	members, err := p.operands()
	if err != nil {
		return nil, err
	}
	return membership{subject, members}, nil
}

// operands reads a list and the parenthesis that ends it.
func (p *parser) operands() ([]operand, *syntaxError) {
	var out []operand
	for {
		o, err := p.operand()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
		if p.accept(",") {
			continue
		}
		return out, p.expect(")")
	}
}

// arguments says how many operands a function takes.
var arguments = map[string]int{
	"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2,
}

func (p *parser) predicate(name string) (condition, *syntaxError) {
	count, known := arguments[name]
	if !known {
		return nil, &syntaxError{"Invalid function name; function: " + name}
	}
	p.at += 2
	args, err := p.operands()
	if err != nil {
		return nil, err
	}
	if len(args) != count {
		return nil, &syntaxError{"Incorrect number of operands for operator or function; operator or function: " + name + ", number of operands: " + strconv.Itoa(len(args))}
	}
	if args[0].path == nil && name != "contains" && name != "begins_with" {
		return nil, &syntaxError{"Operator or function requires a document path; operator or function: " + name}
	}
	return predicate{name, args}, nil
}

func (p *parser) operand() (operand, *syntaxError) {
	if p.peek().kind == tokenValue {
		name := p.next().text
		p.usedValue(name)
		return operand{value: name}, nil
	}
	switch name := p.functionAhead(); name {
	case "":
	case "size":
		p.at += 2
		inner, err := p.path()
		if err != nil {
			return operand{}, err
		}
		return operand{path: inner, size: true}, p.expect(")")
	default:
		return operand{}, &syntaxError{"The function is not allowed to be used this way in an expression; function: " + name}
	}
	inner, err := p.path()
	return operand{path: inner}, err
}
