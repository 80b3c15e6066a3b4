package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/transport/httpsource"
)

// live is the configuration in force, what it is made of, and how another takes its
// place.
type live struct {
	path     string
	stdout   io.Writer
	log      *slog.Logger
	measures *measures
	bridge   *bridge.Bridge
	sources  *sources
	server   *httpsource.Server
	listens  bool          // the server does
	desk     *operate.Desk // of the admin listener; nil without

	config  atomic.Pointer[config.Config]
	refused atomic.Bool // the last reload was

	reloading sync.Mutex
	parts     *parts // guarded by reloading, nil when closed
}

// reloadTimeout bounds what a reload waits for before it switches.
const reloadTimeout = 30 * time.Second

// errNotNow says that the file was not looked at.
var errNotNow = errors.New("not now")

// errRestart says that a file changes what can't be changed while running.
var errRestart = errors.New("needs a restart")

// reload loads the configuration anew and puts it in force: all of it, or, with an
// error, nothing. It returns what changed, for people. A reload that has begun goes
// on when ctx ends.
//
// Nothing that can fail comes after the engine has switched, which it does as a whole.
// Sources that change stop before it and go on after it, so that no two of them
// take from the same broker at a time.
func (l *live) reload(ctx context.Context) (string, error) {
	what, err := l.tryReload(context.WithoutCancel(ctx))
	l.tell(err)
	if err != nil {
		l.log.Error("the configuration was not reloaded; everything goes on as before", "error", err)
		return "", err
	}
	l.log.Info("the configuration was reloaded", "changed", what)
	return what, nil
}

// tell makes status, console and metrics say whether the file is in force.
func (l *live) tell(err error) {
	if errors.Is(err, errNotNow) {
		return // nothing was looked at
	}
	l.refused.Store(err != nil)
	if l.desk == nil {
		return
	}
	if err == nil {
		l.desk.SetProcess()
		return
	}
	now := time.Now()
	l.desk.SetProcess(operate.Finding{
		State: operate.StateNotReloaded, Since: now,
		Text:  fmt.Sprintf("a reload was refused at %s, and the configuration from before is still in force: %s", now.Format(time.TimeOnly), sentence(err.Error())),
		Steps: l.mend(err),
	})
}

// refusal is an error of putting a configuration in force that nothing is wrong with
// by itself, so that validate finds nothing.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// mend says what to do about a reload that was refused. Who reads it may be on another
// machine.
func (l *live) mend(err error) []operate.Step {
	process := fmt.Sprintf("process %d", os.Getpid())
	if host, err := os.Hostname(); err == nil {
		process += " on " + host
	}
	load := operate.Step{Text: "then have " + process + " load it", Command: []string{"kill", "-HUP", strconv.Itoa(os.Getpid())}}
	var unserved *bridge.UnservedError
	var refused refusal
	switch {
	case errors.As(err, &unserved):
		return append(mendUnserved(unserved), load)
	case errors.Is(err, errRestart):
		return []operate.Step{{Text: "put that back in the file as it was"}, load, {Text: "or restart " + process + ", which takes the file as it is"}}
	case errors.As(err, &refused):
		return []operate.Step{{Text: "mend what it says; nothing is wrong with the file by itself"}, load}
	}
	return []operate.Step{{Text: "mend the file until nothing is wrong with it", Command: []string{"gobridge", "validate", l.path}}, load}
}

// mendUnserved says what to do about records that no route of a file would serve. Until
// it is in force their bindings are there, and go on: nothing can be moved out of them.
func mendUnserved(err *bridge.UnservedError) []operate.Step {
	var names []string
	var discards []operate.Step
	for _, s := range err.Partitions {
		name, verbs := string(s.Partition), map[string]bool{"discard": s.Pending+s.Claimed > 0, "dead discard": s.Dead > 0}
		if route, binding, _, ok := s.Partition.Split(); ok {
			name = route + "/" + binding
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		for _, verb := range []string{"discard", "dead discard"} {
			step := operate.Step{Text: "or end for good what it holds", Command: append(append([]string{"gobridge"}, strings.Fields(verb)...), name)}
			if verbs[verb] && !slices.ContainsFunc(discards, func(s operate.Step) bool { return slices.Equal(s.Command, step.Command) }) {
				discards = append(discards, step)
			}
		}
	}
	what := strings.Join(names, ", ")
	return append([]operate.Step{
		{Text: "put " + what + " back into the file"},
		{Text: "or list " + what + " under parked: to let the messages wait; once that is in force, gobridge move takes them to another binding"},
	}, discards...)
}

// sentence makes an error of many lines, as those of files are, fit a sentence.
func sentence(text string) string {
	const most = 300
	text = oneLine(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func (l *live) tryReload(ctx context.Context) (string, error) {
	if !l.reloading.TryLock() {
		return "", fmt.Errorf("%w: a reload is under way already", errNotNow)
	}
	defer l.reloading.Unlock()
	if l.parts == nil {
		return "", fmt.Errorf("%w: the process is stopping", errNotNow)
	}
	c, err := config.Load(l.path)
	if err != nil {
		return "", err
	}
	if err := checkParts(c); err != nil { //nolint:contextcheck // it makes parts, and runs none
		return "", err
	}
	for _, w := range c.Warnings {
		l.log.Warn("configuration", "warning", w.String())
	}
	if err := l.needsRestart(c); err != nil {
		return "", err
	}
	d := compare(l.config.Load(), c)
	if d.nothing() {
		return "nothing", nil
	}
	if err := l.apply(ctx, c, d); err != nil {
		return "", refusal{err}
	}
	return d.String(), nil
}

// needsRestart says what a file changes that can't be changed while running. Secrets
// of the admin listener that are read anew by themselves don't count.
func (l *live) needsRestart(c *config.Config) error {
	now := l.config.Load()
	var changed []string
	for _, section := range []string{"store", "http", "telemetry", "log", "lease_term", "grace"} {
		if !c.Same(now, section) {
			changed = append(changed, section)
		}
	}
	if !c.SameText(now, "admin") {
		changed = append(changed, "admin")
	}
	if len(changed) > 0 {
		return fmt.Errorf("%w: %s cannot be changed while the bridge runs", errRestart, strings.Join(changed, ", "))
	}
	if c.UsesHTTP() && !l.listens {
		return fmt.Errorf("%w: a route has an http source now, and the bridge does not listen, for there was none when it started", errRestart)
	}
	return nil
}

// apply puts a configuration in force, or nothing of it.
func (l *live) apply(ctx context.Context, c *config.Config, d difference) error {
	old := l.parts
	next, err := openParts(c, old, l.stdout, l.log) //nolint:contextcheck // opening a file takes none
	if err != nil {
		return err
	}
	server, err := l.newServer(c)
	if err != nil {
		_ = next.closeBut(old)
		return err
	}
	stopped := map[string]gobridge.Receiver{}
	for route := range old.receivers {
		if !sameSource(old.config, c, route) {
			stopped[route] = l.sources.stop(route)
		}
	}
	err = l.switchEngine(ctx, c, next, d, func() {
		l.server.Adopt(server)
		for route := range next.receivers {
			if _, runs := old.receivers[route]; !runs || stopped[route] != nil {
				l.receive(next, route)
			}
		}
		l.config.Store(c)
		if l.desk != nil {
			l.desk.SetPlan(planOf(c))
		}
		l.parts = next
	})
	if err != nil {
		for route, receiver := range stopped {
			l.sources.start(route, receiver)
		}
		_ = next.closeBut(old)
		return err
	}
	if err := old.closeBut(next); err != nil {
		l.log.Warn("what is not used any more could not be closed", "error", err)
	}
	return nil
}

// switchEngine puts the routes in force, and calls switched when they are. It returns
// when the senders of the old ones are not used any more.
func (l *live) switchEngine(ctx context.Context, c *config.Config, next *parts, d difference, switched func()) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	options := bridgeOptions(c, next.senders, l.measures, l.log)
	change := bridge.Change{
		Remove: d.removed, Parked: options.Parked, Repartitioned: options.Repartitioned, Switched: switched,
	}
	for _, r := range options.Routes {
		if slices.Contains(d.added, r.Name) || slices.Contains(d.changed, r.Name) {
			change.Set = append(change.Set, r)
		}
	}
	return l.bridge.Reconfigure(ctx, change)
}

// receive runs the receiver of a route.
func (l *live) receive(p *parts, route string) {
	told := l.measures.receivers(map[string]gobridge.Receiver{route: p.receivers[route]})
	l.sources.start(route, told[route])
}

// newServer makes a server with the routes of c, which hand over to the engine's
// routes as they are then.
func (l *live) newServer(c *config.Config) (*httpsource.Server, error) {
	return newServer(c, func(route string) httpsource.Publish {
		return l.measures.publish(route, func(ctx context.Context, all ...messaging.Envelope) ([]gobridge.Receipt, error) {
			if h := l.bridge.Route(route); h != nil {
				return h.Publish(ctx, all...)
			}
			return nil, fmt.Errorf("route %q: %w", route, bridge.ErrRouteRemoved)
		})
	}, l.log)
}

// Close waits for a reload that is under way, and closes the parts.
func (l *live) Close() error {
	l.reloading.Lock()
	defer l.reloading.Unlock()
	p := l.parts
	l.parts = nil
	return p.Close()
}

// onSignal reloads with every signal until ctx ends.
func (l *live) onSignal(ctx context.Context, asked <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			_, _ = l.reload(ctx) // it is logged
		}
	}
}

// difference is what another configuration changes.
type difference struct {
	added, changed, removed []string // routes
	connections             []string
	others                  []string // sections
}

func compare(old, c *config.Config) difference {
	var d difference
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		if _, there := old.Routes[route]; !there {
			d.added = append(d.added, route)
		} else if !sameRoute(old, c, route) {
			d.changed = append(d.changed, route)
		}
	}
	for _, route := range slices.Sorted(maps.Keys(old.Routes)) {
		if _, there := c.Routes[route]; !there {
			d.removed = append(d.removed, route)
		}
	}
	names := maps.Clone(old.Connections)
	if names == nil {
		names = map[string]config.Connection{}
	}
	maps.Copy(names, c.Connections)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !sameConnection(old, c, name) {
			d.connections = append(d.connections, name)
		}
	}
	for _, section := range []string{"parked", "repartitioned"} {
		if !old.Same(c, section) {
			d.others = append(d.others, section)
		}
	}
	return d
}

func (d difference) nothing() bool { return d.String() == "" }

// String says it in a line: "routes added: a, b; connections: k".
func (d difference) String() string {
	var out []string
	for _, of := range []struct {
		what  string
		names []string
	}{
		{"routes added", d.added},
		{"routes changed", d.changed},
		{"routes removed", d.removed},
		{"connections", d.connections},
		{"sections", d.others},
	} {
		if len(of.names) > 0 {
			out = append(out, of.what+": "+strings.Join(of.names, ", "))
		}
	}
	return strings.Join(out, "; ")
}
