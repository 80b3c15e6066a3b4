package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"gobridge/operate"
)

// ownerWidth is how much of an owner's name a line of several has.
const ownerWidth = 40

// writeSharing says in a line how several processes share a binding.
func writeSharing(w io.Writer, b *operate.BindingStatus) {
	shares := b.Shares()
	if len(shares) < 2 {
		return
	}
	parts := make([]string, len(shares))
	for i, s := range shares {
		parts[i] = fmt.Sprintf("%s has %d", elide(s.Owner, ownerWidth), s.Partitions)
	}
	text := fmt.Sprintf("%d processes share its %d partitions: %s", len(shares), len(b.Owners), strings.Join(parts, ", "))
	wrap(w, "   ", "   ", text)
}

// writeOwners writes a line for each partition: who has it, under which version,
// since when, and the last sign of life. Below it stands what last went wrong there.
func writeOwners(w io.Writer, b *operate.BindingStatus, now time.Time) {
	shards, names, signs := make([]string, len(b.Owners)), make([]string, len(b.Owners)), make([]string, len(b.Owners))
	shard, name, sign := 0, 0, 0
	for i, o := range b.Owners {
		shards[i] = string(o.Partition[strings.LastIndexByte(string(o.Partition), '/')+1:])
		names[i] = operate.Visible(o.Owner)
		if o.Owner == "" {
			names[i] = "nobody"
		}
		signs[i] = signOfLife(&o, now)
		shard, name, sign = max(shard, len(shards[i])), max(name, len([]rune(names[i]))), max(sign, len(signs[i]))
	}
	name = min(name, width-len("     ")-len("  ")-shard-sign)
	for i := range b.Owners {
		fmt.Fprintf(w, "   %-*s  %-*s  %s\n", shard, shards[i], name, elide(names[i], name), signs[i])
		if o := &b.Owners[i]; o.LastError != "" {
			text := strings.Join(strings.Fields(o.LastError), " ")
			fmt.Fprintln(w, cutTo(fmt.Sprintf("   %-*s  %s: %s", shard, "", age(o.LastErrorAt, now), text), width))
		}
	}
}

func signOfLife(o *operate.Ownership, now time.Time) string {
	if o.Version == 0 {
		return "never owned"
	}
	if o.Owner == "" {
		return fmt.Sprintf("version %d, last renewed %s", o.Version, age(o.RenewedAt, now))
	}
	since := ""
	if !o.AcquiredAt.IsZero() {
		since = " since " + operate.Span(max(0, now.Sub(o.AcquiredAt)))
	}
	return fmt.Sprintf("version %d%s, renewed %s", o.Version, since, age(o.RenewedAt, now))
}

// age says how long ago something was, by the owner's clock.
func age(at, now time.Time) string {
	ago := now.Sub(at)
	if ago <= -time.Second { // the owner's clock or this one is wrong
		return operate.Span(ago) + " ahead of this clock"
	}
	return operate.Span(ago) + " ago"
}

// cutTo shortens a text to most characters at its end.
func cutTo(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// elide shortens a text to most characters at its beginning: the names of owners
// differ at their ends.
func elide(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return "…" + string(runes[len(runes)-most+1:])
	}
	return text
}
