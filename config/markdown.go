package config

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"

	"gobridge/internal/expr"
)

//go:generate sh -c "go run ../cmd/gobridge schema --markdown > ../docs/configuration.md.new && mv ../docs/configuration.md.new ../docs/configuration.md"
//go:generate sh -c "go run ../cmd/gobridge schema > ../docs/configuration.schema.json.new && mv ../docs/configuration.schema.json.new ../docs/configuration.schema.json"

// introduction is the part of the reference page that is about the file as a
// whole.
//
//go:embed introduction.md
var introduction string

// Markdown returns the reference page of the file.
func Markdown() string {
	var b strings.Builder
	before, after, _ := strings.Cut(introduction, "<!-- variables -->\n")
	b.WriteString(before)
	b.WriteString("| variable | type | what it is |\n| --- | --- | --- |\n")
	for _, v := range expr.Variables() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, v.Type, v.Doc)
	}
	b.WriteString(after)
	b.WriteString("\n## Kinds of values\n\n")
	b.WriteString("| kind | how it is written |\n| --- | --- |\n")
	seen := map[reflect.Type]bool{}
	writeKinds(&b, reflect.TypeFor[Config](), seen)
	b.WriteString("\n## Fields\n")
	writeStruct(&b, reflect.TypeFor[Config](), "")
	return b.String()
}

// writeKinds lists the kinds of scalars that are used in t, each once.
func writeKinds(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if seen[t] {
		return
	}
	seen[t] = true
	if s, ok := scalarOf(t); ok {
		fmt.Fprintf(b, "| %s | %s |\n", s.kind().Name, s.kind().Doc)
	} else if t.Kind() == reflect.Struct {
		for _, f := range fieldsOf(t) {
			writeKinds(b, f.typ, seen)
		}
	}
}

// writeStruct writes the fields of t, which stands at a path, and then those of
// the structs in it.
func writeStruct(b *strings.Builder, t reflect.Type, path string) {
	fields := fieldsOf(t)
	if len(fields) == 0 {
		return
	}
	title := "`" + path + "`"
	if path == "" {
		title = "At the top"
	}
	fmt.Fprintf(b, "\n### %s\n\n", title)
	for _, g := range groupsOf(fields) {
		if len(g.members) > 1 {
			fmt.Fprintf(b, "Exactly one of `%s` is given.\n\n", strings.Join(g.members, "`, `"))
		}
	}
	b.WriteString("| field | kind | when absent | what it is |\n| --- | --- | --- | --- |\n")
	for _, f := range fields {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.name, kindOf(f), absent(f), describe(f))
	}
	for _, f := range fields {
		inner, at := f.typ, f.name
		if path != "" {
			at = path + "." + f.name
		}
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
			if inner.Kind() == reflect.Map {
				at += ".NAME"
			}
			inner = inner.Elem()
		}
		if _, ok := scalarOf(inner); !ok && inner.Kind() == reflect.Struct {
			writeStruct(b, inner, at)
		}
	}
}

// kindOf names what a field holds.
func kindOf(f field) string {
	if len(f.enum) > 0 {
		return "`" + strings.Join(f.enum, "`, `") + "`"
	}
	if f.single {
		return typeName(f.typ.Elem()) + ", or a list of them"
	}
	return typeName(f.typ)
}

func typeName(t reflect.Type) string {
	if s, ok := scalarOf(t); ok {
		return s.kind().Name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list: " + typeName(t.Elem())
	case reflect.Map:
		return "by name: " + typeName(t.Elem())
	case reflect.Int:
		return "integer"
	case reflect.Struct:
		return "fields"
	}
	return "string"
}

// absent says what a missing field means.
func absent(f field) string {
	switch {
	case f.required:
		return "**required**"
	case f.def != "":
		return "`" + f.def + "`"
	}
	return ""
}

// describe is the sentence on a field, with an example.
func describe(f field) string {
	if f.example == "" {
		return f.doc
	}
	return f.doc + " Example: `" + f.example + "`."
}
