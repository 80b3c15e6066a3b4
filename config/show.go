package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Show returns the configuration as it was loaded, as YAML: what stands in the
// file, with references instead of what they stand for, and the defaults of what
// does not. It has no secrets: one that stands in the file itself is hidden.
func (c *Config) Show() string {
	var b strings.Builder
	c.showStruct(&b, reflect.ValueOf(c).Elem(), "", 0)
	return b.String()
}

// show notes how a scalar may be shown.
func (d *decoder) show(where, source string, s scalar) {
	if d.shown == nil {
		d.shown = map[string]string{}
	}
	text := source
	switch s := s.(type) {
	case *URL:
		if text = s.Shown; text == "" {
			if text = s.Reveal(); strings.ContainsAny(text, "@?") {
				scheme, _, _ := strings.Cut(text, ":")
				text = scheme + "://" + s.Host + "/..."
			}
		}
	case *Secret:
		if !onlyReference(source) {
			text = redacted
		}
	}
	d.shown[where] = text
}

// onlyReference reports whether a value is one reference, without a default that
// may be the secret itself.
func onlyReference(source string) bool {
	inner, ok := strings.CutPrefix(source, "${")
	inner, ends := strings.CutSuffix(inner, "}")
	return ok && ends && !strings.ContainsAny(inner, "{}") && !strings.Contains(inner, ":-")
}

func (c *Config) showStruct(b *strings.Builder, v reflect.Value, path string, depth int) {
	for _, f := range fieldsOf(v.Type()) {
		c.showField(b, v.Field(f.index), f, join(path, f.name), depth)
	}
}

func (c *Config) showField(b *strings.Builder, v reflect.Value, f field, path string, depth int) {
	indent := strings.Repeat("  ", depth)
	if _, isScalar := scalarOf(f.typ); isScalar || v.Kind() == reflect.String || v.Kind() == reflect.Int || v.Kind() == reflect.Bool {
		if text, given := c.shown[path]; given {
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, plainYAML(text))
		} else if f.def != "" {
			fmt.Fprintf(b, "%s%s: %s  # default\n", indent, f.name, plainYAML(f.def))
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	var inner strings.Builder
	switch v.Kind() {
	case reflect.Struct:
		c.showStruct(&inner, v, path, depth+1)
	case reflect.Map:
		for _, name := range slices.SortedFunc(maps.Keys(mapOf(v)), strings.Compare) {
			c.showField(&inner, v.MapIndex(reflect.ValueOf(name)), field{name: name, typ: v.Type().Elem()}, join(path, name), depth+1)
		}
	case reflect.Slice:
		if text, given := c.shown[path]; given { // one, without a list
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.name, plainYAML(text))
			return
		}
		for i := range v.Len() {
			if text, given := c.shown[path+"["+strconv.Itoa(i)+"]"]; given {
				fmt.Fprintf(&inner, "%s  - %s\n", indent, plainYAML(text))
			}
		}
	}
	_, given := c.at[path]
	switch {
	case inner.Len() > 0:
		fmt.Fprintf(b, "%s%s:\n%s", indent, f.name, inner.String())
	case given:
		fmt.Fprintf(b, "%s%s: {}\n", indent, f.name)
	}
}

// mapOf returns the keys of a map of names.
func mapOf(v reflect.Value) map[string]struct{} {
	out := map[string]struct{}{}
	for _, key := range v.MapKeys() {
		out[key.String()] = struct{}{}
	}
	return out
}

// plainYAML writes a text so that YAML reads it as it is.
func plainYAML(text string) string {
	plain := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r > '~' || strings.ContainsRune("#:{}[],&*!|>'\"%@`\\", r)
	}) && text == strings.TrimSpace(text) && !strings.ContainsAny(text[:1], "-?=<~")
	if plain {
		return text
	}
	return strconv.Quote(text)
}
