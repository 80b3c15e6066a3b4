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

// nearest returns the candidate that word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
	word = strings.ToLower(word)
	best, bound := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bound {
			best, bound = c, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace, or swap with
// their neighbour to get from a to b (optimal string alignment). Long words are
// far from everything.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return len(a) + len(b)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
