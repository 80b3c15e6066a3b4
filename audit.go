package gobridge

import (
	"strconv"
	"strings"
	"time"
)

// AuditEntry says what was done to the outbox by a person or a policy, by whom
// and why. A store writes it in the transaction of the act itself.
type AuditEntry struct {
	// At is the acting process's clock. An act in many pages has one entry, and
	// its At is that of the last page.
	At     time.Time
	Action AuditAction
	// Scope says for people what it was done to: [Control.Scope] or
	// [Filter.Scope].
	Scope string
	// Count is of records that were changed, zero for a control.
	Count  int64
	By     string
	Reason string
}

// AuditAction is what was done.
type AuditAction string

// The actions.
const (
	AuditPause   AuditAction = "pause"
	AuditResume  AuditAction = "resume" // a pause was lifted
	AuditHalt    AuditAction = "halt"
	AuditLift    AuditAction = "lift" // a halt was lifted
	AuditRetry   AuditAction = "retry"
	AuditRedrive AuditAction = "redrive"
	AuditDiscard AuditAction = "discard"
)

// AuditLimit is how many entries a store keeps: the newest.
const AuditLimit = 10_000

// auditMerge is how long after a page another one still belongs to the same act.
const auditMerge = time.Minute

// Continues reports whether e is a further page of the bulk change whose entry
// is last: a store then counts it there instead of keeping an entry for each page.
func (e *AuditEntry) Continues(last *AuditEntry) bool {
	bulk := e.Action == AuditRetry || e.Action == AuditRedrive || e.Action == AuditDiscard
	since := e.At.Sub(last.At)
	return bulk && -auditMerge < since && since < auditMerge && e.Action == last.Action && e.Scope == last.Scope && e.By == last.By && e.Reason == last.Reason
}

// AuditSet returns the entry of a control that is set.
func AuditSet(c *Control, at time.Time) AuditEntry {
	action := AuditPause
	if c.Kind == Halt {
		action = AuditHalt
	}
	return AuditEntry{At: at, Action: action, Scope: c.Scope(), By: c.By, Reason: c.Reason}
}

// AuditCleared returns the entry of a control that is lifted.
func AuditCleared(c *Control, at time.Time) AuditEntry {
	action := AuditResume
	if c.Kind == Halt {
		action = AuditLift
	}
	return AuditEntry{At: at, Action: action, Scope: c.Scope(), By: c.By, Reason: c.Reason}
}

// Scope says for people what the control is about.
func (c *Control) Scope() string {
	f := Filter{Route: c.Route, Binding: c.Binding, OrderingKey: c.OrderingKey, EnvelopeID: c.EnvelopeID}
	return f.Scope()
}

// Scope says for people what the filter selects.
func (f *Filter) Scope() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+strconv.Quote(value))
		}
	}
	switch {
	case f.Partition != "":
		parts = append(parts, string(f.Partition))
	case f.Route != "" && f.Binding != "":
		parts = append(parts, f.Route+"/"+f.Binding)
	case f.Route != "":
		parts = append(parts, f.Route)
	case f.Binding != "":
		parts = append(parts, "*/"+f.Binding)
	default:
		parts = append(parts, "everything")
	}
	add("key", f.OrderingKey)
	if f.HasKey && f.OrderingKey == "" {
		parts = append(parts, "without key")
	}
	add("id", f.EnvelopeID)
	for _, s := range f.States {
		parts = append(parts, s.String())
	}
	add("reason", f.Reason)
	add("error", f.Error)
	if !f.EndedFrom.IsZero() {
		parts = append(parts, "from "+f.EndedFrom.UTC().Format(time.RFC3339))
	}
	if !f.EndedBefore.IsZero() {
		parts = append(parts, "before "+f.EndedBefore.UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, " ")
}
