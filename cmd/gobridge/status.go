package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gobridge/operate"
)

// The exit statuses of the command status.
const (
	statusDegraded    = 1
	statusUnreachable = 2
)

func newStatus(p *place) *cobra.Command {
	owners := false
	cmd := p.bind(&cobra.Command{
		Use:   "status",
		Short: "Say how things stand, and what to do about it",
		Long: `Say how things stand, and what to do about it.

It exits with 0 when all is well, 1 when something needs a person, and 2 when
the outbox cannot be looked at.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := p.look(cmd.Context())
			if err != nil {
				return p.unreachable(err)
			}
			if p.json {
				err = p.writeJSON(s)
			} else {
				err = p.writeStatus(&s, owners)
			}
			if err != nil {
				return &failure{err}
			}
			if s.Level != operate.LevelOK {
				return exitStatus(statusDegraded)
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&owners, "owners", false, "say of every partition who drains it (JSON always has it)")
	return cmd
}

func (p *place) look(ctx context.Context) (operate.Status, error) {
	d, closer, err := p.open(ctx)
	if err != nil {
		return operate.Status{}, err
	}
	defer closer.Close()
	return d.Status(ctx)
}

// unreachable says that the outbox cannot be looked at.
func (p *place) unreachable(err error) error {
	if p.json {
		_ = p.writeJSON(map[string]string{"level": "unreachable", "error": err.Error()}) // the exit status tells
		return exitStatus(statusUnreachable)
	}
	wrap(p.stderr, "UNREACHABLE  ", "   ", oneLine(err.Error()))
	if hint := mendOpening(err); hint != "" {
		p.writeSteps(p.stderr, []operate.Step{{Text: hint, Command: []string{"gobridge", "version"}}})
	}
	return exitStatus(statusUnreachable)
}

// mendOpening says what an error of opening asks for.
func mendOpening(err error) string {
	var u *unreachable
	if errors.As(err, &u) && strings.Contains(err.Error(), "newer one") {
		return "a newer gobridge wrote this outbox: use that one; this one is"
	}
	return ""
}

func (p *place) writeStatus(s *operate.Status, owners bool) error {
	var out bytes.Buffer
	for _, f := range s.Store {
		wrap(&out, "STORE  ", "   ", f.State+": "+f.Text)
		if f.State == operate.StateDisk && p.path != "" {
			f.Steps = append(f.Steps, operate.Step{Text: "see how full its disk is", Command: []string{"df", "-h", p.path}})
		}
		p.writeSteps(&out, f.Steps)
	}
	for _, f := range s.Process {
		wrap(&out, "PROCESS  ", "   ", f.State+": "+f.Text)
		p.writeSteps(&out, f.Steps)
	}
	if len(s.Bindings) == 0 {
		out.WriteString("the outbox is empty: nothing was ever accepted\n")
	}
	longest := 0
	for _, b := range s.Bindings {
		longest = max(longest, len(b.Route)+1+len(b.Binding))
	}
	for i := range s.Bindings {
		p.writeBinding(&out, &s.Bindings[i], min(longest, 30))
		if owners {
			writeOwners(&out, &s.Bindings[i], time.Now())
		} else {
			writeSharing(&out, &s.Bindings[i])
		}
	}
	_, err := p.stdout.Write(out.Bytes())
	return err
}

func (p *place) writeBinding(w io.Writer, b *operate.BindingStatus, names int) {
	head := fmt.Sprintf("%-*s  %s", names, b.Route+"/"+b.Binding, strings.ToUpper(b.State))
	parts := []string{operate.Thousands(b.Pending) + " pending"}
	if !b.OldestPending.IsZero() {
		parts = append(parts, "oldest "+operate.Span(time.Duration(b.OldestAgeSeconds*float64(time.Second))))
	}
	if b.Claimed > 0 {
		parts = append(parts, operate.Thousands(b.Claimed)+" claimed")
	}
	if b.Dead > 0 {
		parts = append(parts, operate.Thousands(b.Dead)+" dead")
	}
	if !b.NextProbe.IsZero() {
		parts = append(parts, "next probe "+operate.Span(max(0, time.Until(b.NextProbe))))
	}
	wrap(w, head+"  ", "   ", strings.Join(parts, ", "))
	for _, f := range b.Findings {
		wrap(w, "   ", "   ", f.Text)
		p.writeSteps(w, f.Steps)
	}
}

func newExplain(p *place) *cobra.Command {
	var q operate.Question
	cmd := p.bind(&cobra.Command{
		Use:   "explain WHAT",
		Short: "Say why a message, a key, a binding or a route stands as it does",
		Args:  wants("WHAT"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			q.Text = args[0]
			answers, err := d.Explain(ctx, q)
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(answers)
			}
			var out bytes.Buffer
			for _, a := range answers {
				wrap(&out, "", "", a.Sentence+".")
				p.writeSteps(&out, a.Steps)
			}
			_, err = p.stdout.Write(out.Bytes())
			return err
		}),
		ValidArgsFunction: p.completeTargets,
	})
	cmd.Flags().BoolVar(&q.OnlyKey, "key", false, "WHAT is an ordering key")
	cmd.Flags().BoolVar(&q.OnlyID, "id", false, "WHAT is a message's ID")
	cmd.MarkFlagsMutuallyExclusive("key", "id")
	return cmd
}

func newAudit(p *place) *cobra.Command {
	limit := 20
	cmd := p.bind(&cobra.Command{
		Use: "audit", Aliases: []string{"log"},
		Short:   "Say who did what, when and why, newest first",
		Args:    wants(),
		PreRunE: func(*cobra.Command, []string) error { return between("limit", limit, 1, math.MaxInt) },
		RunE: p.with(func(ctx context.Context, d desk, _ []string) error {
			entries, err := d.Audit(ctx, limit)
			if err != nil {
				return err
			}
			if p.json {
				return p.writeJSON(auditViews(entries))
			}
			var out bytes.Buffer
			for _, e := range entries {
				what := string(e.Action) + " " + e.Scope
				if e.Count > 0 {
					what += fmt.Sprintf(" (%s)", operate.Thousands(e.Count))
				}
				wrap(&out, "", "   ", e.At.Local().Format("2006-01-02 15:04:05")+"  "+what+"  by "+e.By+": "+e.Reason)
			}
			_, err = p.stdout.Write(out.Bytes())
			return err
		}),
	})
	cmd.Flags().IntVar(&limit, "limit", limit, "how many entries at most")
	return cmd
}
