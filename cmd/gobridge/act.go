package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gobridge/operate"
)

// act is a command that changes data: without --yes it only says what it would
// do.
type act struct {
	*place
	cmd    *cobra.Command
	yes    bool
	reason string
	by     string
}

// bindAct gives a command the flags of an act.
func bindAct(p *place, cmd *cobra.Command) *act {
	a := &act{place: p, cmd: p.bind(cmd)}
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do it; without it, only say what would be done")
	cmd.Flags().StringVar(&a.reason, "reason", "", "why, for those who read the audit log")
	cmd.Flags().StringVar(&a.by, "by", "", "who, when it is not the user at this terminal")
	return a
}

// who is who acts, and why. It is an error not to say why.
func (a *act) who() (operate.Who, error) {
	if strings.TrimSpace(a.reason) == "" {
		return operate.Who{}, usage("--yes wants --reason \"...\": it is kept for those who ask later")
	}
	by := a.by
	if by == "" {
		by = whoami()
	}
	return operate.Who{By: by, Reason: a.reason}, nil
}

// outcome is what an act did, or would do, for scripts.
type outcome struct {
	Done bool   `json:"done"`
	What string `json:"what"`
	// Detail depends on the command.
	Detail any `json:"detail,omitempty"`
}

// run says what would be done, or does it and says what was done. Would is in
// the infinitive.
func (a *act) run(ctx context.Context, args []string, would string, detail any, do func(context.Context, operate.Who) (string, any, error)) error {
	if !a.yes {
		if a.json {
			return a.writeJSON(outcome{What: would, Detail: detail})
		}
		return a.print("would %s\nto do it:\n     %s\n", would, a.again(args))
	}
	who, err := a.who()
	if err != nil {
		return err
	}
	done, detail, err := do(ctx, who)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(outcome{Done: true, What: done, Detail: detail})
	}
	return a.print("%s\n", done)
}

// again is the command line that does what this one only tells.
func (a *act) again(args []string) string {
	reason := `"..."`
	if a.reason != "" {
		reason = operate.CommandLine([]string{a.reason})
	}
	return operate.CommandLine(given(a.cmd, args, "reason", "yes")) + " --yes --reason " + reason
}

// given is the command line as it was given, but for some flags.
func given(cmd *cobra.Command, args []string, except ...string) []string {
	line := append(strings.Fields(cmd.CommandPath()), args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains(except, f.Name):
		case f.Value.Type() == "bool":
			line = append(line, "--"+f.Name)
		default:
			line = append(line, "--"+f.Name, f.Value.String())
		}
	})
	return line
}

func (p *place) print(format string, args ...any) error {
	_, err := fmt.Fprintf(p.stdout, format, args...)
	return err
}

func (p *place) writeJSON(v any) error {
	out := json.NewEncoder(p.data)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// progress writes how far a long command is, on a terminal only.
func (p *place) progress(verb string) (report func(int), end func()) {
	f := p.stderr.terminal()
	if f == nil {
		return nil, func() {}
	}
	return func(n int) { fmt.Fprintf(f, "\r%s %s ", verb, operate.Thousands(n)) }, func() { fmt.Fprint(f, "\r\x1b[K") }
}

// width is what lines fit.
const width = 80

// wrap writes text in lines of at most width, each after indent, the first
// after first. It has no lines of its own: a line break in it is made visible.
func wrap(w io.Writer, first, indent, text string) {
	line, used := first, false
	for _, word := range strings.FieldsFunc(operate.Visible(text), func(r rune) bool { return r == ' ' }) {
		if used && len([]rune(line))+1+len([]rune(word)) > width {
			fmt.Fprintln(w, line)
			line, used = indent, false
		}
		if used {
			line += " "
		}
		line += word
		used = true
	}
	fmt.Fprintln(w, line)
}

// writeSteps writes what to do, each command on a line of its own.
func (p *place) writeSteps(w io.Writer, steps []operate.Step) {
	for _, s := range steps {
		text, command := s.Text, p.command(s.Command)
		if command != "" {
			text += ":"
		}
		wrap(w, "   → ", "     ", text)
		if command != "" {
			fmt.Fprintf(w, "     %s\n", command)
		}
	}
}
