package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// Schema returns the JSON Schema (draft 2020-12) of the file, for editors and
// checks elsewhere. What it refuses, [Parse] refuses; Parse checks more.
func Schema() ([]byte, error) {
	w := schemaWriter{definitions: jsonschema.Definitions{}}
	root := w.object(reflect.TypeFor[Config]())
	root.Version = jsonschema.Version
	root.Title = "gobridge configuration"
	root.Definitions = w.definitions
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write JSON Schema: %w", err)
	}
	return append(out, '\n'), nil
}

// schemaWriter turns the types of the configuration into schemas.
type schemaWriter struct {
	definitions jsonschema.Definitions
}

// object returns the schema of a struct.
func (w *schemaWriter) object(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           jsonschema.NewProperties(),
		AdditionalProperties: jsonschema.FalseSchema,
	}
	fields := fieldsOf(t)
	for _, f := range fields {
		s.Properties.Set(f.name, w.property(f))
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	for _, g := range groupsOf(fields) {
		one := &jsonschema.Schema{}
		for _, name := range g.members {
			one.OneOf = append(one.OneOf, &jsonschema.Schema{Required: []string{name}})
		}
		s.AllOf = append(s.AllOf, one)
	}
	return s
}

// property returns the schema of a field.
func (w *schemaWriter) property(f field) *jsonschema.Schema {
	s := w.value(f.typ, f)
	if s.Ref != "" {
		// A description beside a reference is allowed, and shown, since draft 2019-09.
		s = &jsonschema.Schema{Ref: s.Ref}
	}
	s.Description = f.doc
	if f.def != "" {
		s.Default = plainValue(f.def)
	}
	if f.example != "" && f.example[0] != '[' {
		s.Examples = []any{plainValue(f.example)}
	}
	return s
}

// value returns the schema of a type.
func (w *schemaWriter) value(t reflect.Type, f field) *jsonschema.Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := scalarOf(t); ok {
		return w.define(t, func() *jsonschema.Schema { return scalarSchema(s.kind()) })
	}
	switch t.Kind() {
	case reflect.Struct:
		return w.define(t, func() *jsonschema.Schema { return w.object(t) })
	case reflect.Slice:
		item := w.value(t.Elem(), field{})
		list := &jsonschema.Schema{Type: "array", Items: item, MinItems: atLeast(f.least)}
		if f.single {
			return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{item, list}}
		}
		return list
	case reflect.Map:
		keys := HeaderName("").kind().Pattern
		if f.keys == "name" {
			keys = "^" + namePattern + "$"
		}
		return &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: w.value(t.Elem(), field{}),
			PropertyNames:        &jsonschema.Schema{Pattern: keys},
			MinProperties:        atLeast(f.least),
		}
	case reflect.Int:
		number := &jsonschema.Schema{Type: "integer", Minimum: bound(f.min), Maximum: bound(f.max)}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{number, reference()}}
	default:
		s := &jsonschema.Schema{Type: "string", MinLength: atLeast(1)}
		if len(f.enum) == 0 {
			return s
		}
		s.MinLength = nil
		for _, e := range f.enum {
			s.Enum = append(s.Enum, e)
		}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, reference()}}
	}
}

// define puts the schema of a named type among the definitions and refers to it.
func (w *schemaWriter) define(t reflect.Type, schema func() *jsonschema.Schema) *jsonschema.Schema {
	if _, ok := w.definitions[t.Name()]; !ok {
		w.definitions[t.Name()] = nil // there now, should it refer to itself
		w.definitions[t.Name()] = schema()
	}
	return &jsonschema.Schema{Ref: "#/$defs/" + t.Name()}
}

// scalarSchema returns the schema of a value that is written as one string.
func scalarSchema(k kind) *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string", Pattern: k.Pattern}
	if k.Pattern == "" && !k.mayBeEmpty {
		text.MinLength = atLeast(1)
	}
	if k.boolean {
		text = &jsonschema.Schema{Type: "boolean"}
	}
	s := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{text}}
	if k.Integer {
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "integer", Minimum: "1"})
	}
	if k.Pattern != "" {
		s.AnyOf = append(s.AnyOf, reference())
	}
	if len(s.AnyOf) == 1 {
		s = text
	}
	s.Description = k.Doc
	return s
}

// reference is the schema of a value in which something is to be put.
func reference() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `\$\{`}
}

func atLeast(n int) *uint64 {
	if n == 0 {
		return nil
	}
	u := uint64(n)
	return &u
}

func bound(n *int) json.Number {
	if n == nil {
		return ""
	}
	return json.Number(strconv.Itoa(*n))
}

// plainValue returns what a default or example is in JSON.
func plainValue(text string) any {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return strings.TrimSpace(text)
}
