package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxProblems bounds what is reported about one file.
const maxProblems = 100

// Problem is one thing that is wrong with a file, or worth a warning.
type Problem struct {
	File string
	// Line and Column count from 1, Column in characters.
	Line, Column int
	// What is wrong.
	What string
	// Where it is in the structure: "routes.orders.bindings.crm.retry". Empty at
	// the top.
	Where string
	// Hint says what would be right, where that is known.
	Hint string
}

// String returns the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", p.File, p.Line, p.Column, p.What)
	if p.Where != "" {
		fmt.Fprintf(&b, "; at %s", p.Where)
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, "; %s", p.Hint)
	}
	return b.String()
}

// Error is everything that is wrong with a file, in its order.
type Error struct {
	Problems []Problem
	// Omitted is how many more there are than are listed.
	Omitted int
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more problems", e.Omitted))
	}
	return strings.Join(lines, "\n")
}

// Wrong returns an [*Error] that puts err at its place in the file, for what only
// those who use the configuration find to be wrong. The path leads to the value,
// or to one around it: "routes", "orders", "source".
func (c *Config) Wrong(err error, path ...string) *Error {
	p := Problem{File: c.file, Line: 1, Column: 1, What: err.Error()}
	for _, name := range path {
		p.Where = join(p.Where, name)
		if at, ok := c.at[p.Where]; ok {
			p.Line, p.Column = at.line, at.column
		}
	}
	return &Error{Problems: []Problem{p}}
}

// sortProblems puts them in the order of the file.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
