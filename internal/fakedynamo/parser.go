package fakedynamo

import (
	"slices"
	"strconv"
	"strings"
)

// step is one element of a document path: a name (or its placeholder), or an
// index into a list if name is empty.
type step struct {
	name  string
	index int
}

type path []step

// parser reads one expression. It collects the placeholders used, so that
// undefined and unused ones can be refused.
type parser struct {
	text   string
	tokens []token
	at     int
	names  []string
	values []string
	depth  int
}

// The longest expression, and how deep its parentheses may go (the latter is the
// fake's own bound, far above what a store writes).
const (
	maxExpression = 4096
	maxNesting    = 100
)

func newParser(text string) (*parser, *syntaxError) {
	if strings.TrimSpace(text) == "" {
		return nil, &syntaxError{"The expression can not be empty;"}
	}
	if len(text) > maxExpression {
		return nil, &syntaxError{"Expression size has exceeded the maximum allowed size; expression size: " + strconv.Itoa(len(text))}
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	return &parser{text: text, tokens: tokens}, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

func (p *parser) unexpected() *syntaxError { return syntaxAt(p.text, p.peek()) }

func (p *parser) accept(mark string) bool {
	if p.peek().mark(mark) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(mark string) *syntaxError {
	if !p.accept(mark) {
		return p.unexpected()
	}
	return nil
}

func (p *parser) acceptKeyword(word string) bool {
	if p.peek().is(word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) end() *syntaxError {
	if p.peek().kind != tokenEnd {
		return p.unexpected()
	}
	return nil
}

func (p *parser) usedValue(name string) {
	if !slices.Contains(p.values, name) {
		p.values = append(p.values, name)
	}
}

// path reads name(.name|[index])*.
func (p *parser) path() (path, *syntaxError) {
	first, err := p.pathName()
	if err != nil {
		return nil, err
	}
	out := path{first}
	for {
		switch {
		case p.accept("."):
			s, err := p.pathName()
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		case p.accept("["):
			t := p.peek()
			index, convert := strconv.Atoi(t.text)
			if t.kind != tokenIndex || convert != nil {
				return nil, p.unexpected()
			}
			p.next()
			if err := p.expect("]"); err != nil {
				return nil, err
			}
			out = append(out, step{index: index})
		default:
			return out, nil
		}
	}
}

func (p *parser) pathName() (step, *syntaxError) {
	t := p.peek()
	switch t.kind {
	case tokenName:
		if !slices.Contains(p.names, t.text) {
			p.names = append(p.names, t.text)
		}
	case tokenWord:
		if reserved(t.text) {
			return step{}, &syntaxError{"Attribute name is a reserved keyword; reserved keyword: " + t.text}
		}
	default:
		return step{}, p.unexpected()
	}
	p.next()
	return step{name: t.text}, nil
}

// functionAhead reports the name of a function if one is called next.
func (p *parser) functionAhead() string {
	t := p.peek()
	if t.kind == tokenWord && p.tokens[p.at+1].mark("(") {
		return t.text
	}
	return ""
}

// env is what placeholders stand for in one request.
type env struct {
	names  map[string]string
	values item
}

func (e *env) name(s step) string {
	if s.name[0] == '#' {
		return e.names[s.name]
	}
	return s.name
}

// resolve follows a path into the item; nil if there is nothing.
func (e *env) resolve(it item, p path) *value {
	v := it[e.name(p[0])]
	for _, s := range p[1:] {
		switch {
		case v == nil:
			return nil
		case s.name != "":
			if v.kind != kindMap {
				return nil
			}
			v = v.fields[e.name(s)]
		default:
			if v.kind != kindList || s.index >= len(v.list) {
				return nil
			}
			v = v.list[s.index]
		}
	}
	return v
}

func (e *env) pathText(p path) string {
	var parts []string
	for _, s := range p {
		if s.name == "" {
			parts = append(parts, "["+strconv.Itoa(s.index)+"]")
			continue
		}
		parts = append(parts, e.name(s))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// overlap reports whether two paths are equal or one leads into the other, or
// (conflict) whether they take the same place for a list and for a map.
func (e *env) overlap(a, b path) (overlaps, conflicts bool) {
	for i := range min(len(a), len(b)) {
		switch {
		case (a[i].name == "") != (b[i].name == ""):
			return false, true
		case a[i].name == "":
			if a[i].index != b[i].index {
				return false, false
			}
		case e.name(a[i]) != e.name(b[i]):
			return false, false
		}
	}
	return true, false
}

func (e *env) distinct(paths []path) *syntaxError {
	for i, a := range paths {
		for _, b := range paths[:i] {
			overlaps, conflicts := e.overlap(a, b)
			word := "overlap"
			if conflicts {
				word = "conflict"
			}
			if overlaps || conflicts {
				return &syntaxError{"Two document paths " + word + " with each other; must remove or rewrite one of these paths; path one: " + e.pathText(b) + ", path two: " + e.pathText(a)}
			}
		}
	}
	return nil
}
