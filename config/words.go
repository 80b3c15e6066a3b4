package config

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"gobridge/internal/expr"
)

// found says what a node is, without its value.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int":
		return "an integer"
	case "!!float":
		return "a number that is no plain integer"
	case "!!bool":
		return "true or false"
	case "!!str", "!!timestamp":
		return "a string"
	}
	return "a value with a tag of its own"
}

// shown returns what a report may repeat of a value: as it stands in the file,
// so that nothing that was put in comes out, and nothing of a secret.
func shown(n *yaml.Node, k kind) string {
	if k.Secret {
		return "the value"
	}
	return quote(n.Value)
}

// quote returns a string for a message, shortened if it is long.
func quote(s string) string {
	if utf8.RuneCountInString(s) > maxName {
		s = string([]rune(s)[:maxName-3]) + "..."
	}
	return strconv.Quote(s)
}

// join adds a name to a path; one with a dot in it is quoted.
func join(where, name string) string {
	if strings.ContainsAny(name, ".\"[] \n") || name == "" || len(name) > maxName {
		name = quote(name)
	}
	if where == "" {
		return name
	}
	return where + "." + name
}

// enumerate writes a, b and c.
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// inside returns the place in the file of a problem in an expression: the exact
// one where the file has the expression as it is, otherwise its beginning.
func (d *decoder) inside(n *yaml.Node, p expr.Problem) position {
	start := position{n.Line, n.Column}
	lines := strings.Split(n.Value, "\n")
	if p.Line > len(lines) {
		return start
	}
	line, column := n.Line, n.Column
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		line = n.Line + p.Line // the text begins below the indicator
		text, ok := d.line(line)
		if !ok || len(text) < len(lines[p.Line-1]) {
			return start
		}
		column = utf8.RuneCountInString(text) - utf8.RuneCountInString(lines[p.Line-1]) + 1
	case len(lines) > 1:
		return start
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		column++
	}
	text, ok := d.line(line)
	if !ok {
		return start
	}
	runes := []rune(text)
	if column-1 > len(runes) || !strings.HasPrefix(string(runes[column-1:]), lines[p.Line-1]) {
		return start
	}
	return position{line, column + p.Column - 1}
}

// line returns a line of the file.
func (d *decoder) line(number int) (string, bool) {
	if number < 1 || number > len(d.lines) {
		return "", false
	}
	return d.lines[number-1], true
}
