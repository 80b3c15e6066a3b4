package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gobridge"
)

// completeTargets completes routes and bindings from the configuration.
func (p *place) completeTargets(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	c, err := p.load()
	if err != nil || c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	add := func(name string) {
		if strings.HasPrefix(name, typed) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, b := range planOf(c).Bindings {
		add(b.Route)
		add(b.Route + "/" + b.Binding)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// auditView is an audit entry for scripts.
type auditView struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"`
	Scope  string    `json:"scope"`
	Count  int64     `json:"count"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

func auditViews(entries []gobridge.AuditEntry) []auditView {
	out := make([]auditView, len(entries))
	for i, e := range entries {
		out[i] = auditView{At: e.At, Action: string(e.Action), Scope: e.Scope, Count: e.Count, By: e.By, Reason: e.Reason}
	}
	return out
}
