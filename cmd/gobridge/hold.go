package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"gobridge"
	"gobridge/operate"
)

// subject is what an act is about: a target, and in it perhaps one key or one
// message.
type subject struct {
	key string
	id  string
}

func (s *subject) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.key, "key", "", "only the messages of this ordering key")
	cmd.Flags().StringVar(&s.id, "id", "", "only the message with this ID")
	cmd.MarkFlagsMutuallyExclusive("key", "id")
	notEmpty(cmd, "key", "id")
}

// of says for people what it is, in the target.
func (s *subject) of(t operate.Target) string {
	switch {
	case s.key != "":
		return "key " + operate.Visible(s.key) + " of " + t.String()
	case s.id != "":
		return "message " + operate.Visible(s.id) + " of " + t.String()
	}
	return t.String()
}

// filter selects it.
func (s *subject) filter(t operate.Target) gobridge.Filter {
	f := t.Filter()
	f.OrderingKey, f.HasKey, f.EnvelopeID = s.key, s.key != "", s.id
	return f
}

// target reads a target that must be known.
func target(ctx context.Context, d desk, text string) (operate.Target, error) {
	t, err := operate.ParseTarget(text)
	if err != nil {
		return t, &usageError{err}
	}
	return t, d.Known(ctx, t)
}

func newPause(p *place) *cobra.Command {
	var a *act
	cmd := &cobra.Command{
		Use:   "pause TARGET",
		Short: "Stop deliveries of a route (orders) or a binding (orders/crm)",
		Args:  wants("TARGET"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			would := fmt.Sprintf("pause %s: nothing of it is delivered until it is resumed; messages are accepted all the same", t)
			return a.run(ctx, args, would, nil, func(ctx context.Context, who operate.Who) (string, any, error) {
				return "paused " + t.String(), nil, d.Pause(ctx, t, who)
			})
		}),
		ValidArgsFunction: p.completeTargets,
	}
	a = bindAct(p, cmd)
	return cmd
}

func newResume(p *place) *cobra.Command {
	var a *act
	var s subject
	cmd := &cobra.Command{
		Use:   "resume TARGET",
		Short: "Lift a pause, or with --key or --id a halt",
		Args:  wants("TARGET"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			controls, err := d.Holding(ctx, t, s.key, s.id)
			if err != nil {
				return err
			}
			if len(controls) == 0 {
				return fmt.Errorf("%w: nothing holds %s itself; gobridge explain %s tells what does", gobridge.ErrNotFound, s.of(t), args[0])
			}
			c := controls[0]
			would := fmt.Sprintf("lift the %s of %s, set %s by %s: %s", c.Kind, s.of(t), c.Since.Local().Format("2006-01-02 15:04:05"), operate.Visible(c.By), operate.Visible(c.Reason))
			return a.run(ctx, args, would, nil, func(ctx context.Context, who operate.Who) (string, any, error) {
				return "resumed " + s.of(t), nil, d.Resume(ctx, t, s.key, s.id, who)
			})
		}),
		ValidArgsFunction: p.completeTargets,
	}
	a = bindAct(p, cmd)
	s.bind(cmd)
	return cmd
}

func newHalt(p *place) *cobra.Command {
	var a *act
	var s subject
	cmd := &cobra.Command{
		Use:   "halt BINDING",
		Short: "Stop deliveries of one key, or of one message without a key",
		Args:  wants("BINDING"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			if t.Binding == "" || s.key == "" && s.id == "" {
				return usage("a halt is of one key or message of a binding: gobridge halt orders/crm --key K")
			}
			would := fmt.Sprintf("halt %s: it waits until it is resumed, and nothing else does", s.of(t))
			return a.run(ctx, args, would, nil, func(ctx context.Context, who operate.Who) (string, any, error) {
				return "halted " + s.of(t), nil, d.Halt(ctx, t, s.key, s.id, who)
			})
		}),
		ValidArgsFunction: p.completeTargets,
	}
	a = bindAct(p, cmd)
	s.bind(cmd)
	return cmd
}

func newRetry(p *place) *cobra.Command {
	var a *act
	var s subject
	cmd := &cobra.Command{
		Use:   "retry TARGET",
		Short: "Try at once what waits for its next attempt, and a destination that is down",
		Args:  wants("TARGET"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			waiting, err := d.Waiting(ctx, t)
			if err != nil {
				return err
			}
			if s != (subject{}) {
				there, err := waits(ctx, d, t, &s)
				if err != nil {
					return err
				}
				if !there {
					return a.nothingWaits(t, &s)
				}
			}
			would := fmt.Sprintf("try %s at once, where %s wait", s.of(t), operate.Thousands(waiting))
			return a.run(ctx, args, would, map[string]int64{"pending": waiting}, func(ctx context.Context, who operate.Who) (string, any, error) {
				n, err := d.Retry(ctx, s.filter(t), who)
				text := fmt.Sprintf("asked for %s to be tried at once, and its destination if that is down; ", s.of(t))
				switch n {
				case 0:
					text += "no message waited for a time of its own"
				case 1:
					text += "1 message waited for its time, and is due now"
				default:
					text += operate.Thousands(n) + " messages waited for their time, and are due now"
				}
				return text, map[string]int{"due": n}, err
			})
		}),
		ValidArgsFunction: p.completeTargets,
	}
	a = bindAct(p, cmd)
	s.bind(cmd)
	return cmd
}

// waits reports whether a message of the subject waits in the target.
func waits(ctx context.Context, d desk, t operate.Target, s *subject) (bool, error) {
	answers, err := d.Explain(ctx, operate.Question{Text: cmp.Or(s.key, s.id), OnlyKey: s.key != "", OnlyID: s.id != ""})
	return slices.ContainsFunc(answers, func(a operate.Answer) bool {
		waits := a.Record != nil && (a.Record.State == gobridge.StatePending.String() || a.Record.State == gobridge.StateClaimed.String())
		return waits && a.Route == t.Route && (t.Binding == "" || a.Binding == t.Binding) &&
			(t.Partition == "" || a.Record.Partition == string(t.Partition))
	}), err
}

// nothingWaits says that, and where to look.
func (a *act) nothingWaits(t operate.Target, s *subject) error {
	job := operate.Job{Kind: "retry", Filter: s.filter(t)}
	job.Filter.States = []gobridge.State{gobridge.StatePending}
	if a.json {
		return a.writeJSON(outcome{What: a.nothing(&job)})
	}
	return a.print("%s\n", a.nothing(&job))
}

func newMove(p *place) *cobra.Command {
	var a *act
	cmd := &cobra.Command{
		Use:   "move FROM TO",
		Short: "Move what waits in a removed binding to another one",
		Args:  wants("FROM", "TO"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			from, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			to, err := target(ctx, d, args[1])
			if err != nil {
				return err
			}
			if from.Binding == "" || to.Binding == "" {
				return usage("name two bindings: gobridge move old/crm orders/crm")
			}
			waiting, err := d.Waiting(ctx, from)
			if err != nil {
				return err
			}
			would := fmt.Sprintf("move what waits in %s (%s) to %s, in its order, behind what waits there; dead letters stay", from, operate.Thousands(waiting), to)
			return a.run(ctx, args, would, map[string]int64{"pending": waiting}, func(ctx context.Context, who operate.Who) (string, any, error) {
				r, err := d.Move(ctx, from, to, who)
				text := fmt.Sprintf("moved %s to %s", operate.Thousands(r.Moved), to)
				if r.Expired > 0 {
					text += fmt.Sprintf("; %s had expired", operate.Thousands(r.Expired))
				}
				if left := r.Left.Pending + r.Left.Claimed; left > 0 {
					text += fmt.Sprintf("; %s stay, on hold or not due yet", operate.Thousands(left))
				}
				return text, r, err
			})
		}),
		ValidArgsFunction: p.completeTargets,
	}
	a = bindAct(p, cmd)
	return cmd
}
