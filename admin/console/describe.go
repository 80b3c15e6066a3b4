package console

import (
	"context"
	"maps"
	"slices"

	"gobridge"
	"gobridge/operate"
)

// label is an act as its button has it; empty for none.
func label(do string) string {
	switch do {
	case doRetry:
		return "Retry now"
	case doRedrive:
		return "Redrive"
	case doDiscard, doDiscardDead:
		return "Discard"
	case doPause:
		return "Pause"
	case doHalt:
		return "Halt"
	case doResume:
		return "Resume"
	case doMove:
		return "Move"
	case doReload:
		return "Reload"
	}
	return ""
}

// describe says what an act would do. It looks, and changes nothing.
func (c *console) describe(ctx context.Context, a *act, out *actPage) error {
	out.Label, out.Post, out.Back = label(a.do), "/act?"+a.query().Encode(), a.back()
	out.NeedsReason, out.MaxReason, out.NeedsKey = a.do != doReload, maxReason, a.needsKey()
	out.Danger = a.do == doDiscard || a.do == doDiscardDead
	out.Command = operate.CommandLine(a.command())
	desk, subject := c.surface.Desk, a.subject()
	switch a.do {
	case doRetry:
		out.Would = "Try what waits of " + subject + " at once, rather than at its next time."
		out.Notes = []string{"Order is kept. If the destination is down, it is probed now."}
		n, err := desk.Waiting(ctx, a.target)
		if err == nil && a.of.ID == "" && a.of.Key == "" {
			out.Notes = append(out.Notes, count(n, "message waits", "messages wait")+".")
		}
		return err
	case doPause:
		out.Would = "Stop the deliveries of " + subject + " until somebody resumes it."
		out.Notes = []string{"Messages are accepted meanwhile, and wait. What is on its way is finished."}
	case doHalt:
		out.Would = "Stop " + subject + " until somebody resumes it."
		if out.NeedsKey {
			out.Would = "Stop one key of " + a.target.String() + " until somebody resumes it."
		}
		out.Notes = []string{"Other keys go on. Messages are accepted meanwhile, and wait."}
	case doResume:
		return c.describeResume(ctx, a, out)
	case doMove:
		n, err := desk.Waiting(ctx, a.target)
		out.Would = "Move what waits in " + a.target.String() + " to " + a.to + ": " + count(n, "message", "") + "."
		out.Notes = []string{"They keep their order, behind what waits there. Dead letters stay."}
		return err
	case doReload:
		if c.surface.Reload == nil {
			return wrong("This process can't load its configuration anew: start it again.")
		}
		out.Would = "Load the configuration anew."
	default:
		return c.describeBulk(ctx, a, out)
	}
	return nil
}

// describeResume says what the pause or halt was that is lifted.
func (c *console) describeResume(ctx context.Context, a *act, out *actPage) error {
	held, err := c.surface.Desk.Holding(ctx, a.target, a.of.Key, a.of.ID)
	if err != nil {
		return err
	}
	out.Would = "Let " + a.subject() + " go on."
	if len(held) == 0 {
		out.Nothing, out.Notes = true, []string{"Nothing holds it: somebody has resumed it already, or its whole route is on hold."}
		return nil
	}
	one := held[0]
	was := "halted"
	if one.Kind == gobridge.Pause {
		was = "paused"
	}
	text := "It was " + was
	if one.By != "" {
		text += " by " + short(one.By)
	}
	text += " at " + one.Since.Local().Format("2006-01-02 15:04:05")
	if one.Reason != "" {
		text += ", saying: " + short(one.Reason)
	}
	out.Notes = []string{text}
	return nil
}

// describeBulk counts what a redrive or discard would change, up to a bound.
func (c *console) describeBulk(ctx context.Context, a *act, out *actPage) error {
	if a.removed {
		out.Would = "End everything that " + a.target.String() + " holds, dead letters too. The configuration has it no more."
		out.Notes = []string{"This is for good."}
		return nil
	}
	report, err := c.surface.Desk.Do(ctx, a.job(true), operate.Who{}, nil)
	if err != nil {
		return err
	}
	out.Report, out.Nothing = &report, report.Count == 0
	what := "dead letter"
	if a.do == doDiscard {
		what = "waiting message"
	}
	number := count(report.Count, what, "")
	if report.More {
		number = operate.Thousands(report.Count) + " or more " + what + "s"
	}
	number += " of " + a.subject()
	theirs := "they are never delivered, and their payloads are gone."
	if report.Count == 1 {
		number, theirs = "message "+short(report.First[0].ID)+" of "+a.target.String(), "it is never delivered, and its payload is gone."
	}
	switch {
	case out.Nothing:
		out.Would = "There is no such " + what + "."
		return nil
	case a.do == doRedrive:
		out.Would = "Send " + number + " again."
		out.Notes = []string{"What is sent again goes behind what waits already, in its old order."}
		if report.Overtaken > 0 {
			out.Notes = append(out.Notes, "Younger messages of the same key have been delivered before "+operate.Thousands(report.Overtaken)+" of these: their order is lost.")
		}
	default:
		out.Would = "End " + number + "."
		out.Notes = []string{"This is for good: " + theirs}
	}
	for _, name := range slices.Sorted(maps.Keys(report.Reasons)) {
		if name != "" {
			out.Reasons = append(out.Reasons, figure{short(name), operate.Thousands(report.Reasons[name])})
		}
	}
	return nil
}

// command is what does the same at a terminal; empty if nothing does.
func (a *act) command() []string {
	words := map[string][]string{
		doRetry: {"retry"}, doRedrive: {"dead", "redrive"}, doDiscard: {"discard"}, doDiscardDead: {"dead", "discard"},
		doPause: {"pause"}, doHalt: {"halt"}, doResume: {"resume"}, doMove: {"move"},
	}[a.do]
	if len(words) == 0 || a.needsKey() || a.of.NoKey {
		return nil
	}
	out := append([]string{"gobridge"}, words...)
	out = append(out, a.target.String())
	if a.to != "" {
		out = append(out, a.to)
	}
	for _, f := range []figure{{"--key", a.of.Key}, {"--id", a.of.ID}, {"--cause", a.of.Cause}, {"--error", a.of.Error}, {"--after", a.of.After}, {"--before", a.of.Before}} {
		if f.Value != "" {
			out = append(out, f.Name, f.Value)
		}
	}
	return append(out, "--yes", "--reason", "...")
}
