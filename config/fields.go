package config

import (
	"reflect"
	"strconv"
	"strings"
)

// field is one field of a struct of the configuration, as its tags have it.
type field struct {
	name     string
	index    int
	typ      reflect.Type
	required bool
	doc      string
	def      string // default, as it would stand in the file
	example  string
	one      string // the group of alternatives it belongs to
	enum     []string
	min, max *int
	least    int
	single   bool
	keys     string
}

// fieldsOf returns the fields of a struct in the order of their declaration.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("config"), ",")
		if name == "" || name == "-" {
			continue
		}
		info := field{
			name:     name,
			index:    i,
			typ:      f.Type,
			required: option == "required",
			doc:      f.Tag.Get("doc"),
			def:      f.Tag.Get("default"),
			example:  f.Tag.Get("example"),
			one:      f.Tag.Get("one"),
			min:      number(f.Tag.Get("min")),
			max:      number(f.Tag.Get("max")),
			keys:     f.Tag.Get("keys"),
			single:   f.Tag.Get("single") == "true",
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			info.enum = strings.Split(enum, ",")
		}
		if n := number(f.Tag.Get("least")); n != nil {
			info.least = *n
		}
		out = append(out, info)
	}
	return out
}

func number(tag string) *int {
	n, err := strconv.Atoi(tag)
	if err != nil {
		return nil
	}
	return &n
}

// group is a set of alternatives.
type group struct {
	name    string
	members []string
}

// groupsOf returns the sets of alternatives among the fields.
func groupsOf(fields []field) []group {
	var out []group
	for _, f := range fields {
		switch {
		case f.one == "":
		case len(out) > 0 && out[len(out)-1].name == f.one:
			last := &out[len(out)-1]
			last.members = append(last.members, f.name)
		default:
			out = append(out, group{f.one, []string{f.name}})
		}
	}
	return out
}

// scalarOf returns a scalar of type t, or of the type it points to, and
// whether it is one.
func scalarOf(t reflect.Type) (scalar, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s, ok := reflect.New(t).Interface().(scalar)
	return s, ok
}
