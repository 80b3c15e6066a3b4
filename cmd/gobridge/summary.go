package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gobridge/config"
)

// summarize writes what a valid configuration does.
func summarize(w io.Writer, c *config.Config) error {
	var b strings.Builder
	b.WriteString("ok\n")
	switch {
	case c.Store.SQLite != nil:
		fmt.Fprintf(&b, "store   sqlite %s\n", c.Store.SQLite.Path)
	case c.Store.DynamoDB != nil:
		fmt.Fprintf(&b, "store   dynamodb table %s\n", c.Store.DynamoDB.Table)
	default:
		b.WriteString("store   memory: everything is lost when the process ends\n")
	}
	if c.UsesHTTP() {
		fmt.Fprintf(&b, "listen  %s://%s\n", scheme(c.HTTP.TLS), c.HTTP.Listen)
	}
	if c.Admin != nil {
		fmt.Fprintf(&b, "admin   %s://%s\n", scheme(c.Admin.TLS), c.Admin.Listen)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		summarizeRoute(&b, name, c.Routes[name])
	}
	for _, p := range c.Parked {
		fmt.Fprintf(&b, "parked  %s\n", p)
	}
	for _, warning := range c.Warnings {
		fmt.Fprintf(&b, "warning %s\n", warning)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return &failure{err}
	}
	return nil
}

func summarizeRoute(b *strings.Builder, name string, r config.Route) {
	fmt.Fprintf(b, "route   %s: %s\n", name, origin(r.Source))
	if r.OrderingKey != nil {
		fmt.Fprintf(b, "        in order per %s\n", oneLine(r.OrderingKey.Source))
	}
	for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
		dest := r.Bindings[binding]
		fmt.Fprintf(b, "     -> %s: %s", binding, destination(dest))
		if dest.Filter != nil {
			fmt.Fprintf(b, ", if %s", oneLine(dest.Filter.Source))
		}
		b.WriteString("\n")
	}
}

// origin says where a route's messages come from.
func origin(s config.Source) string {
	switch {
	case s.HTTP == nil:
		return s.Describe()
	case s.HTTP.Auth == nil:
		return fmt.Sprintf("POST %s, anyone", s.HTTP.Path)
	case s.HTTP.Auth.Webhook != nil:
		return fmt.Sprintf("POST %s, signed", s.HTTP.Path)
	}
	return fmt.Sprintf("POST %s, with a bearer token", s.HTTP.Path)
}

// destination says where a binding's messages go.
func destination(b config.Binding) string {
	if name, _ := b.Connection(); name != "" {
		return b.Describe()
	}
	switch {
	case b.Webhook != nil && len(b.Webhook.Secrets) > 0:
		return "webhook to " + b.Webhook.URL.Host + ", signed"
	case b.Webhook != nil:
		return "webhook to " + b.Webhook.URL.Host
	case b.File != nil:
		return "file " + b.File.Path
	}
	return "standard output"
}

// oneLine writes an expression on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
