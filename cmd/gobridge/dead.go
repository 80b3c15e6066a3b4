package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gobridge"
	"gobridge/operate"
)

// selection narrows down the records of a target.
type selection struct {
	subject
	cause  string
	error  string
	after  string
	before string
}

// bind gives a command the flags that select among records of a state.
func (s *selection) bind(cmd *cobra.Command, state gobridge.State) {
	s.subject.bind(cmd)
	f := cmd.Flags()
	notEmpty(cmd, "cause", "error", "after", "before")
	if state != gobridge.StateDead {
		f.StringVar(&s.cause, "cause", "", "only those that were last put back for this, as explain --json tells: the field reason")
		f.StringVar(&s.error, "error", "", "only those whose last error is like this; * stands for any text")
		return
	}
	f.StringVar(&s.cause, "cause", "", "only those that died for this: exhausted, permanent, expired, ...")
	f.StringVar(&s.error, "error", "", "only those whose error is like this; * stands for any text")
	f.StringVar(&s.after, "after", "", "only those that died then or later: a time (RFC 3339), or how long ago (2h)")
	f.StringVar(&s.before, "before", "", "only those that died earlier: a time (RFC 3339), or how long ago (2h)")
}

func (s *selection) filter(t operate.Target) (gobridge.Filter, error) {
	f := s.subject.filter(t)
	f.Reason, f.Error = s.cause, s.error
	var err error
	if f.EndedFrom, err = moment("after", s.after); err != nil {
		return f, err
	}
	f.EndedBefore, err = moment("before", s.before)
	return f, err
}

// moment reads a time, or how long ago it was.
func moment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usage("--%s %q is no time; write 2026-03-01T02:13:00Z, or 2h for two hours ago", flag, text)
	}
	return time.Now().Add(-d), nil
}

func newDead(p *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, send them again, end them, take them elsewhere",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given; gobridge dead --help lists them")
		},
	}
	cmd.AddCommand(newDeadList(p), newDeadShow(p), newDeadExport(p), newDeadImport(p),
		newBulk(p, &cobra.Command{
			Use:   "redrive TARGET",
			Short: "Send dead letters again, behind what waits, in their old order",
		}, operate.Redrive, gobridge.StateDead),
		newBulk(p, &cobra.Command{
			Use:   "discard TARGET",
			Short: "End dead letters for good",
		}, operate.Discard, gobridge.StateDead))
	return cmd
}

// maxDeadPage is the longest list of dead letters.
const maxDeadPage = 1000

func newDeadList(p *place) *cobra.Command {
	var s selection
	query := gobridge.DeadQuery{Limit: 20}
	var cmd *cobra.Command
	cmd = p.bind(&cobra.Command{
		Use:   "list TARGET",
		Short: "List dead letters, oldest first",
		Args:  wants("TARGET"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			if query.Filter, err = s.filter(t); err != nil {
				return err
			}
			page, err := pageOf(ctx, d, query)
			if err != nil {
				return err
			}
			return p.writeDead(&page, append(given(cmd, args, "cursor"), "--cursor", page.Cursor))
		}),
		ValidArgsFunction: p.completeTargets,
	})
	s.bind(cmd, gobridge.StateDead)
	also(cmd, func() error { return between("limit", query.Limit, 1, maxDeadPage) })
	cmd.Flags().IntVar(&query.Limit, "limit", query.Limit, fmt.Sprintf("how many at most, up to %d", maxDeadPage))
	cmd.Flags().StringVar(&query.Cursor, "cursor", "", "go on where the page before ended")
	return cmd
}

// pageOf returns a full page, if there are so many: those of a store may be short.
func pageOf(ctx context.Context, d desk, query gobridge.DeadQuery) (operate.DeadPage, error) {
	out := operate.DeadPage{Records: []operate.RecordView{}} // a list in JSON, too, if there is nothing
	for {
		page, err := d.Dead(ctx, query)
		if err != nil {
			return out, err
		}
		out.Records, out.Cursor = append(out.Records, page.Records...), page.Cursor
		query.Limit -= len(page.Records)
		query.Cursor = page.Cursor
		if query.Limit <= 0 || query.Cursor == "" {
			return out, nil
		}
	}
}

func (p *place) writeDead(page *operate.DeadPage, more []string) error {
	if p.json {
		return p.writeJSON(page)
	}
	var out bytes.Buffer
	for _, v := range page.Records {
		key := ""
		if v.Key != "" {
			key = "  key " + v.Key
		}
		wrap(&out, "", "   ", fmt.Sprintf("%s  %s%s  %s, %d bytes", v.EndedAt.Local().Format("2006-01-02 15:04:05"), v.ID, key, v.Reason, v.PayloadBytes))
		if v.Error != "" {
			wrap(&out, "   ", "   ", oneLine(v.Error))
		}
	}
	switch {
	case page.Cursor != "":
		fmt.Fprintf(&out, "more:\n     %s\n", operate.CommandLine(more))
	case len(page.Records) == 0:
		out.WriteString("no dead letters\n")
	}
	_, err := p.stdout.Write(out.Bytes())
	return err
}

func newDeadShow(p *place) *cobra.Command {
	return p.bind(&cobra.Command{
		Use:   "show BINDING ID",
		Short: "Show a dead letter, payload included",
		Args:  wants("BINDING", "ID"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			r, err := d.Get(ctx, t, args[1])
			if err != nil {
				return err
			}
			if p.json {
				line, err := operate.EncodeLetter(&r)
				if err != nil {
					return err
				}
				_, err = p.data.Write(append(line, '\n'))
				return err
			}
			return p.writeRecord(&r, p.stdout.terminal() != nil)
		}),
		ValidArgsFunction: p.completeTargets,
	})
}

// writeRecord writes a record, its payload byte for byte unless a terminal gets it.
func (p *place) writeRecord(r *gobridge.Record, terminal bool) error {
	var out bytes.Buffer
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&out, "%-14s %s\n", name, operate.Visible(value))
		}
	}
	when := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Local().Format(time.RFC3339Nano)
	}
	e := &r.Envelope
	row("id", e.ID)
	row("partition", string(r.Partition))
	row("state", r.State.String())
	row("key", e.OrderingKey)
	row("subject", e.Subject)
	row("content type", e.ContentType)
	row("stored", when(r.StoredAt))
	row("not before", when(e.NotBefore))
	row("expires", when(e.ExpiresAt))
	row("ended", when(r.EndedAt))
	row("reason", r.Reason)
	row("error", r.Error)
	row("attempts", fmt.Sprintf("%d failed, %d claims, %d redrives", r.Attempts, r.ReplayCount, r.Redrives))
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		row("header", fmt.Sprintf("%s: %q", name, e.Headers[name]))
	}
	row("payload", fmt.Sprintf("%d bytes", len(e.Payload)))
	out.WriteString("\n")
	if _, err := p.stdout.Write(out.Bytes()); err != nil {
		return err
	}
	payload, to := slices.Clone(e.Payload), p.data
	if !bytes.HasSuffix(payload, []byte("\n")) {
		payload = append(payload, '\n')
	}
	if terminal {
		to = p.stdout
	}
	_, err := to.Write(payload)
	return err
}

// newDiscard is the bulk discard of what waits.
func newDiscard(p *place) *cobra.Command {
	return newBulk(p, &cobra.Command{
		Use:   "discard TARGET",
		Short: "End messages that wait, for good; of a removed binding everything",
	}, operate.Discard, gobridge.StatePending)
}

// newBulk makes a command that changes many records.
func newBulk(p *place, cmd *cobra.Command, kind operate.BulkKind, state gobridge.State) *cobra.Command {
	var a *act
	var s selection
	job := operate.Job{Kind: kind}
	cmd.Args = wants("TARGET")
	cmd.ValidArgsFunction = p.completeTargets
	cmd.RunE = p.with(func(ctx context.Context, d desk, args []string) error {
		t, err := target(ctx, d, args[0])
		if err != nil {
			return err
		}
		if job.Filter, err = s.filter(t); err != nil {
			return err
		}
		if state == gobridge.StatePending && s == (selection{}) && d.Removed(t.Route, t.Binding) {
			return endRemoved(ctx, a, d, t, args)
		}
		if kind == operate.Discard {
			job.Filter.States = []gobridge.State{state}
		}
		return a.bulk(ctx, d, job, args)
	})
	a = bindAct(p, cmd)
	s.bind(cmd, state)
	also(cmd, func() error {
		return cmp.Or(between("max", job.Max, 0, math.MaxInt), between("pace", job.Pace, 0, math.MaxFloat64))
	})
	cmd.Flags().IntVar(&job.Max, "max", 0, "how many at most; 0 is no bound")
	cmd.Flags().Float64Var(&job.Pace, "pace", 0, "how many a second at most; 0 is no bound")
	return cmd
}

func endRemoved(ctx context.Context, a *act, d desk, t operate.Target, args []string) error {
	would := fmt.Sprintf("end everything that %s holds, dead letters too; the configuration has it no more", t)
	return a.run(ctx, args, would, nil, func(ctx context.Context, who operate.Who) (string, any, error) {
		n, err := d.EndRemoved(ctx, t, who)
		return fmt.Sprintf("ended %s of %s", operate.Thousands(n), t), map[string]int{"count": n}, err
	})
}

// bulk says what a job would do, or does it.
func (a *act) bulk(ctx context.Context, d desk, job operate.Job, args []string) error {
	if !a.yes {
		job.DryRun = true
		report, err := d.Do(ctx, job, operate.Who{}, nil)
		if err != nil {
			return err
		}
		if report.Count == 0 && !a.json {
			return a.print("%s\n", a.nothing(&job))
		}
		return a.run(ctx, args, describe(&report)+a.stillHalted(ctx, d, &report), report, nil)
	}
	return a.run(ctx, args, "", nil, func(ctx context.Context, who operate.Who) (string, any, error) {
		progress, end := a.progress(string(job.Kind))
		report, err := d.Do(ctx, job, who, progress)
		end()
		if err != nil {
			if errors.Is(err, context.Canceled) {
				err = fmt.Errorf("stopped")
			}
			return "", nil, fmt.Errorf("%s of %s: %w after %s; run it again for the rest:\n     %s", job.Kind, report.Scope, err,
				operate.Thousands(report.Count), a.again(args))
		}
		if report.Count == 0 {
			return a.nothing(&job), report, nil
		}
		done := map[operate.BulkKind]string{operate.Redrive: "redrove", operate.Discard: "discarded"}[job.Kind]
		text := fmt.Sprintf("%s %s of %s", done, operate.Thousands(report.Count), report.Scope)
		if report.More {
			text += "; more are left"
		}
		return text + a.stillHalted(ctx, d, &report), report, nil
	})
}

// nothing says that no record matches, and where to look.
func (a *act) nothing(job *operate.Job) string {
	look := []string{"gobridge", "status"}
	switch f := &job.Filter; {
	case f.EnvelopeID != "":
		look = []string{"gobridge", "explain", "--id", f.EnvelopeID}
	case f.OrderingKey != "":
		look = []string{"gobridge", "explain", "--key", f.OrderingKey}
	}
	return fmt.Sprintf("nothing to %s: no record is %s\nto see how it stands:\n     %s", job.Kind, job.Filter.Scope(), a.command(look))
}

// stillHalted says of the keys of what is discarded, as far as the report names them,
// that they stay halted: to end a message lifts no halt.
func (a *act) stillHalted(ctx context.Context, d desk, report *operate.BulkReport) string {
	if report.Kind != operate.Discard {
		return ""
	}
	var b strings.Builder
	told := map[string]bool{}
	for _, one := range report.First {
		route, binding, _, _ := gobridge.Partition(one.Partition).Split()
		t := operate.Target{Route: route, Binding: binding}
		s := subject{key: one.Key}
		if one.Key == "" || told[s.of(t)] {
			continue
		}
		told[s.of(t)] = true
		if controls, err := d.Holding(ctx, t, one.Key, ""); err != nil || len(controls) == 0 {
			continue // the discard is what was asked for, and it is done
		}
		fmt.Fprintf(&b, "\n%s stays halted; to let it go on:\n     %s", s.of(t), a.command([]string{"gobridge", "resume", t.String(), "--key", one.Key}))
	}
	return b.String()
}

// describe says what a job would do.
func describe(r *operate.BulkReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s of %s", r.Kind, operate.Thousands(r.Count), r.Scope)
	if r.Keys > 0 {
		fmt.Fprintf(&b, ", %s keys", operate.Thousands(r.Keys))
	}
	if r.Kind == operate.Redrive && r.Overtaken > 0 {
		fmt.Fprintf(&b, ";\nof %s of them, younger messages of the same key have been delivered already: they come after those", operate.Thousands(r.Overtaken))
	}
	for _, one := range r.First {
		fmt.Fprintf(&b, "\n   %s", operate.Visible(one.ID))
		if one.Key != "" {
			fmt.Fprintf(&b, "  key %s", operate.Visible(one.Key))
		}
		if one.Reason != "" {
			fmt.Fprintf(&b, "  %s: %s", operate.Visible(one.Reason), operate.Visible(one.Error))
		}
	}
	if r.Count > len(r.First) {
		fmt.Fprintf(&b, "\n   ...")
	}
	return b.String()
}

func newDeadExport(p *place) *cobra.Command {
	var s selection
	var file string
	cmd := p.bind(&cobra.Command{
		Use:   "export TARGET",
		Short: "Write dead letters as lines of JSON, every byte of them",
		Long: `Write dead letters as lines of JSON, every byte of them, and leave them where
they are. With --out, an export that was interrupted goes on where it stopped.`,
		Args: wants("TARGET"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			t, err := target(ctx, d, args[0])
			if err != nil {
				return err
			}
			filter, err := s.filter(t)
			if err != nil {
				return err
			}
			progress, end := p.progress("exported")
			defer end()
			if file == "" {
				_, err = d.Export(ctx, filter, p.data, nil, progress)
				return err
			}
			return p.exportTo(ctx, d, filter, file, progress)
		}),
		ValidArgsFunction: p.completeTargets,
	})
	s.bind(cmd, gobridge.StateDead)
	notEmpty(cmd, "out")
	cmd.Flags().StringVar(&file, "out", "", "the file to write, or to go on with; standard output when absent")
	return cmd
}

// exportTo exports into a file, behind what is there already.
func (p *place) exportTo(ctx context.Context, d desk, filter gobridge.Filter, path string, progress func(int)) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	there, length, err := operate.Exported(f)
	if err != nil {
		return fmt.Errorf("%s is no export to go on with: %w", path, err)
	}
	if err := f.Truncate(length); err != nil {
		return err
	}
	if _, err := f.Seek(length, io.SeekStart); err != nil {
		return err
	}
	n, err := d.Export(ctx, filter, f, func(r gobridge.Ref) bool { return there[r] }, progress)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return err
	}
	if p.json {
		return p.writeJSON(map[string]int{"exported": n, "there_before": len(there)})
	}
	return p.print("exported %s to %s, where %s were already\n", operate.Thousands(n), path, operate.Thousands(len(there)))
}

func newDeadImport(p *place) *cobra.Command {
	var a *act
	var to string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Store the dead letters of an export as dead letters (- is standard input)",
		Long: `Store the dead letters of an export as dead letters, those that are not here
yet; it can be repeated after it was interrupted. To send them, redrive them.`,
		Args: wants("FILE"),
		RunE: p.with(func(ctx context.Context, d desk, args []string) error {
			var t operate.Target
			if to != "" {
				var err error
				if t, err = target(ctx, d, to); err != nil {
					return err
				}
				if t.Binding == "" {
					return usage("--to names a binding, like orders/crm")
				}
			}
			return a.importFrom(ctx, d, t, args)
		}),
	}
	a = bindAct(p, cmd)
	notEmpty(cmd, "to")
	cmd.Flags().StringVar(&to, "to", "", "the binding whose dead letters they become, instead of their own")
	return cmd
}

// notImported says what an import leaves out, and why.
func notImported(r *operate.ImportReport) string {
	var ended []string
	n := 0
	for _, one := range []struct {
		count int
		as    string
	}{{r.Discarded, "discarded"}, {r.Delivered, "delivered"}, {r.Expired, "expired"}} {
		if one.count > 0 {
			n += one.count
			ended = append(ended, operate.Thousands(one.count)+" "+one.as)
		}
	}
	var text string
	if here := r.Held - n; here > 0 || n == 0 {
		text = fmt.Sprintf("; %s are here already", operate.Thousands(here))
	}
	if n > 0 {
		text += fmt.Sprintf("; %s have ended here (%s): their IDs are remembered for as long as the store's retention, and are not taken again until then",
			operate.Thousands(n), strings.Join(ended, ", "))
	}
	return text
}

func (a *act) importFrom(ctx context.Context, d desk, to operate.Target, args []string) error {
	read := func(ctx context.Context, who operate.Who, dry bool) (operate.ImportReport, error) {
		in := io.Reader(os.Stdin)
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return operate.ImportReport{}, err
			}
			defer f.Close()
			in = f
		}
		progress, end := a.progress("read")
		defer end()
		report, err := d.Import(ctx, in, to, who, dry, progress)
		if err != nil {
			err = fmt.Errorf("%s: %w (%d imported until then)", args[0], err, report.Imported)
		}
		return report, err
	}
	text := func(verb string, r operate.ImportReport) string {
		return fmt.Sprintf("%s %s dead letters of %s", verb, operate.Thousands(r.Imported), args[0]) + notImported(&r)
	}
	if !a.yes {
		report, err := read(ctx, operate.Who{}, true)
		if err != nil {
			return err
		}
		return a.run(ctx, args, text("import", report), report, nil)
	}
	return a.run(ctx, args, "", nil, func(ctx context.Context, who operate.Who) (string, any, error) {
		report, err := read(ctx, who, false)
		return text("imported", report), report, err
	})
}
