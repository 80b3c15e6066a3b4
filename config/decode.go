package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"gobridge"
	"gobridge/internal/expr"
	"gobridge/internal/spelling"
)

const (
	// maxNodes bounds what is decoded, for aliases can make much of a small file.
	maxNodes = 100_000
	// maxExpressions bounds what is compiled, in bytes: that takes far longer than
	// reading does.
	maxExpressions = 256 << 10
	// maxName bounds the part of a wrong name that is repeated.
	maxName = 80
)

// position is a place in the file.
type position struct{ line, column int }

// decoder turns nodes into the values of a Config and gathers problems.
type decoder struct {
	source   Input
	lines    []string
	problems []Problem
	omitted  int // problems beyond maxProblems
	nodes    int
	compiled int // bytes of expressions
	// at has the place of every value that was decoded, by its path, and shown how
	// it may be shown.
	at    map[string]position
	shown map[string]string
	texts map[string]scalarText
}

// report adds a problem at a node.
func (d *decoder) report(n *yaml.Node, where, hint, format string, args ...any) {
	d.reportAt(position{n.Line, n.Column}, where, hint, format, args...)
}

func (d *decoder) reportAt(p position, where, hint, format string, args ...any) {
	if len(d.problems) == maxProblems {
		d.omitted++
		return
	}
	d.problems = append(d.problems, d.problem(p, where, hint, format, args...))
}

func (d *decoder) problem(p position, where, hint, format string, args ...any) Problem {
	return Problem{
		File: d.source.Name, Line: max(p.line, 1), Column: max(p.column, 1),
		What: fmt.Sprintf(format, args...), Where: where, Hint: hint,
	}
}

// value decodes n into v, which the tags of f describe.
func (d *decoder) value(n *yaml.Node, v reflect.Value, f field, where string) {
	n = resolve(n)
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.report(n, where, "use fewer aliases", "the file has more than %d values, its aliases counted out", maxNodes)
		}
		return
	}
	d.at[where] = position{n.Line, n.Column}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if s, ok := v.Addr().Interface().(scalar); ok {
		d.scalar(n, s, where)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, where)
	case reflect.Map:
		d.named(n, v, f, where)
	case reflect.Slice:
		d.list(n, v, f, where)
	default:
		d.plain(n, v, f, where)
	}
}

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for range 100 {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

// pairs calls f for each entry of a mapping whose key is a string that comes
// for the first time.
func (d *decoder) pairs(n *yaml.Node, where string, f func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" || key.ShortTag() == "!!binary" {
			d.report(key, where, "write a plain name", "expected a name, found %s", found(key))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.report(key, join(where, key.Value), "keep one", "%s is given twice, first on line %d", quote(key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		f(key, n.Content[i+1])
	}
}

// mapping decodes the fields of a struct.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, where string) {
	fields := fieldsOf(v.Type())
	hint := "write it as name: value, or in { }"
	if !slices.ContainsFunc(fields, func(f field) bool { return f.required || f.one != "" }) {
		hint = "write {} if there is nothing to set"
	}
	if !d.is(n, yaml.MappingNode, "a mapping", hint, where) {
		return
	}
	given := map[string]*yaml.Node{} // the keys
	meant := map[string]bool{}       // what unknown fields were probably meant to be
	d.pairs(n, where, func(key, value *yaml.Node) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if i < 0 {
			meant[d.unknown(key, fields, where)] = true
			return
		}
		given[key.Value] = key
		d.value(value, v.Field(fields[i].index), fields[i], join(where, key.Value))
	})
	d.alternatives(n, fields, given, meant, where)
	for _, f := range fields {
		if given[f.name] != nil {
			continue
		}
		if f.required && !meant[f.name] {
			d.report(n, where, "add "+f.name+": "+f.doc, "%s is missing", f.name)
		}
		setDefault(v.Field(f.index), f)
	}
}

// unknown reports a field that is not there, and returns the one that was
// probably meant, or "".
func (d *decoder) unknown(key *yaml.Node, fields []field, where string) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	guess := spelling.Nearest(key.Value, names)
	hint := "did you mean " + guess + "?"
	switch {
	case key.Value == "<<":
		hint = "merge keys are not supported; write the fields out, or use an alias for a whole value"
	case guess == "" && len(names) == 0:
		hint = "there are no fields here"
	case guess == "":
		hint = "the fields here are " + enumerate(names)
	}
	d.report(key, where, hint, "unknown field %s", quote(key.Value))
	return guess
}

// alternatives checks that one field of each group is given.
func (d *decoder) alternatives(n *yaml.Node, fields []field, given map[string]*yaml.Node, meant map[string]bool, where string) {
	for _, g := range groupsOf(fields) {
		var have []string
		guessed := false
		for _, name := range g.members {
			if given[name] != nil {
				have = append(have, name)
			}
			guessed = guessed || meant[name]
		}
		slices.SortFunc(have, func(a, b string) int {
			return cmp.Or(given[a].Line-given[b].Line, given[a].Column-given[b].Column)
		})
		switch {
		case len(have) > 1:
			d.report(given[have[1]], where, "keep one", "%s are given; there is one %s here", strings.Join(have, " and "), g.name)
		case len(have) == 0 && !guessed:
			d.report(n, where, "write "+strings.Join(g.members, " or "), "no %s is given", g.name)
		}
	}
}

// named decodes a map.
func (d *decoder) named(n *yaml.Node, v reflect.Value, f field, where string) {
	if !d.is(n, yaml.MappingNode, "a mapping", "write it as name: value, or in { }", where) {
		return
	}
	if len(n.Content) < 2*f.least {
		d.report(n, where, "add at least one", "it is empty")
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]string{} // the names as written, by their lower case
	d.pairs(n, where, func(key, value *yaml.Node) {
		inside := join(where, key.Value)
		if !d.checkKey(key, f.keys, where) {
			return
		}
		folded := strings.ToLower(key.Value)
		if other, ok := seen[folded]; ok {
			d.report(key, where, "names differ in more than upper and lower case", "%s is %s again", quote(key.Value), quote(other))
			return
		}
		seen[folded] = key.Value
		entry := reflect.New(v.Type().Elem()).Elem()
		d.value(value, entry, field{}, inside)
		v.SetMapIndex(reflect.ValueOf(key.Value), entry)
	})
}

// checkKey checks a key of a map.
func (d *decoder) checkKey(key *yaml.Node, keys, where string) bool {
	switch keys {
	case "name":
		if err := gobridge.CheckName(key.Value); err != nil {
			d.report(key, where, "like orders or crm-eu", "%s is not a name", quote(key.Value))
			return false
		}
	case "header":
		var h HeaderName
		if err := h.parse(key.Value); err != nil || key.Value == "" {
			d.report(key, where, h.kind().Hint, "%s is not a header name", quote(key.Value))
			return false
		}
	}
	return true
}

// list decodes a list.
func (d *decoder) list(n *yaml.Node, v reflect.Value, f field, where string) {
	if f.single && n.Kind == yaml.ScalarNode {
		entry := reflect.New(v.Type().Elem()).Elem()
		d.value(n, entry, field{}, where)
		v.Set(reflect.Append(v, entry))
		return
	}
	if !d.is(n, yaml.SequenceNode, "a list", "write it in [ ]", where) {
		return
	}
	if len(n.Content) < f.least {
		d.report(n, where, "add at least one", "it is empty")
	}
	for i, item := range n.Content {
		entry := reflect.New(v.Type().Elem()).Elem()
		d.value(item, entry, field{}, where+"["+strconv.Itoa(i)+"]")
		v.Set(reflect.Append(v, entry))
	}
}

// plain decodes a string or an integer.
func (d *decoder) plain(n *yaml.Node, v reflect.Value, f field, where string) {
	if v.Kind() == reflect.String {
		text, ok := d.text(n, stringKind, where)
		if !ok {
			return
		}
		if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
			hint := "write " + strings.Join(f.enum, ", ")
			if guess := spelling.Nearest(text, f.enum); guess != "" {
				hint = "did you mean " + guess + "?"
			}
			d.report(n, where, hint, "%s is not one of the values allowed", shown(n, stringKind))
		}
		v.SetString(text)
		d.show(where, n.Value, nil)
		return
	}
	text, ok := d.text(n, integerKind, where)
	if !ok {
		return
	}
	// YAML itself takes more for a number, 0x1F and 017 among it, and readers of
	// it do not agree on what 017 is.
	i, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(i) != text {
		d.report(n, where, "write decimal digits", "expected an integer, found %s", shown(n, stringKind))
		return
	}
	if f.min != nil && i < *f.min || f.max != nil && i > *f.max {
		d.report(n, where, "write "+bounds(f), "%s is out of bounds", shown(n, stringKind))
	}
	v.SetInt(int64(i))
	d.show(where, n.Value, nil)
}

// bounds describes the integers allowed.
func bounds(f field) string {
	switch {
	case f.max == nil:
		return fmt.Sprintf("%d or more", *f.min)
	case *f.min == *f.max:
		return strconv.Itoa(*f.min)
	}
	return fmt.Sprintf("%d to %d", *f.min, *f.max)
}

// scalar decodes a value that is written as one string.
func (d *decoder) scalar(n *yaml.Node, s scalar, where string) {
	k := s.kind()
	text, ok := d.text(n, k, where)
	if !ok {
		return
	}
	if !d.mayCompile(n, s, text, where) {
		return
	}
	err := s.parse(text)
	var bad *expr.Error
	put := strings.Contains(n.Value, "${")
	switch {
	case err == nil:
		if h, ok := s.(hider); ok && put {
			h.hide(n.Value)
		}
		d.show(where, n.Value, s)
		if secret, ok := s.(*Secret); ok && put {
			source := n.Value
			secret.again = func() (string, error) { return d.substitute(source) }
		}
	case errors.As(err, &bad) && put:
		d.report(n, where, "check what is put in; its problems are not shown, for they would show that", "%s does not compile", shown(n, k))
	case errors.As(err, &bad):
		for _, p := range bad.Problems {
			d.reportAt(d.inside(n, p), where, "", "%s", p.Message)
		}
	default:
		d.report(n, where, k.Hint, "%s %s", shown(n, k), err)
	}
}

// mayCompile counts expressions, and reports when they are too many.
func (d *decoder) mayCompile(n *yaml.Node, s scalar, text, where string) bool {
	switch s.(type) {
	case *KeyExpr, *FilterExpr, *TextExpr:
	default:
		return true
	}
	before := d.compiled
	d.compiled += len(text)
	if before <= maxExpressions && d.compiled > maxExpressions {
		d.report(n, where, "use fewer aliases", "the file has more than %d bytes of expressions, its aliases counted out", maxExpressions)
	}
	return d.compiled <= maxExpressions
}

// text returns what a scalar of kind k says after substitution. A wrong type is
// reported, and the empty string too, except as a secret.
func (d *decoder) text(n *yaml.Node, k kind, where string) (string, bool) {
	if !d.is(n, yaml.ScalarNode, k.article(), k.Hint, where) {
		return "", false
	}
	if strings.Contains(n.Value, "${") {
		text, err := d.substitute(n.Value)
		if err != nil {
			d.report(n, where, "", "the value %s", err)
			return "", false
		}
		if text == "" && !k.mayBeEmpty {
			d.report(n, where, k.Hint, "%s is empty", shown(n, k))
		}
		d.texts[where] = textOf(n.Value, text)
		return text, text != "" || k.mayBeEmpty
	}
	right := false
	switch n.ShortTag() {
	case "!!int":
		right = k.Integer
	case "!!str", "!!timestamp":
		right = !k.onlyInteger && !k.boolean
	case "!!bool":
		right = k.boolean
	}
	if !right {
		d.report(n, where, k.Hint, "expected %s, found %s", k.article(), found(n))
		return "", false
	}
	if n.Value == "" && !k.mayBeEmpty {
		d.report(n, where, k.Hint, "it is empty")
	}
	d.texts[where] = textOf(n.Value, n.Value)
	return n.Value, n.Value != "" || k.mayBeEmpty
}

// is reports a node of another kind than wanted.
func (d *decoder) is(n *yaml.Node, k yaml.Kind, want, hint, where string) bool {
	if n.Kind != k {
		d.report(n, where, hint, "expected %s, found %s", want, found(n))
	}
	return n.Kind == k
}

// setDefault gives an absent field its default.
func setDefault(v reflect.Value, f field) {
	switch s, isScalar := scalarOf(v.Type()); {
	case v.Kind() == reflect.Pointer:
	case isScalar:
		if f.def != "" && s.parse(f.def) == nil {
			v.Set(reflect.ValueOf(s).Elem())
		}
	case v.Kind() == reflect.String:
		v.SetString(f.def)
	case v.Kind() == reflect.Int:
		n, _ := strconv.Atoi(f.def)
		v.SetInt(int64(n))
	case v.Kind() == reflect.Struct:
		for _, inner := range fieldsOf(v.Type()) {
			setDefault(v.Field(inner.index), inner)
		}
	}
}
