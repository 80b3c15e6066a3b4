package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"gobridge"
	"gobridge/config"
	"gobridge/transport/jsonlines"
)

// parts are what a configuration is made of, beside the store, the engine and the
// listeners. What two configurations have in common they share.
type parts struct {
	config    *config.Config
	brokers   brokers
	receivers map[string]gobridge.Receiver // by route
	senders   *senders
	// terminal is the sender to standard output, one for all, so that lines stay
	// whole.
	terminal gobridge.Sender
}

// senders are the destinations, by route and binding.
type senders struct {
	of map[[2]string]gobridge.Sender
	// closers are those that have something to close.
	closers map[[2]string]io.Closer
}

// openParts makes what c needs and old, if it is not nil, has not. With an error,
// nothing that was made is left open.
func openParts(c *config.Config, old *parts, stdout io.Writer, log *slog.Logger) (_ *parts, err error) {
	if old == nil {
		old = &parts{config: &config.Config{}, senders: &senders{}, terminal: jsonlines.Stdout(stdout)}
	}
	p := &parts{
		config: c, brokers: brokers{}, terminal: old.terminal,
		senders: &senders{of: map[[2]string]gobridge.Sender{}, closers: map[[2]string]io.Closer{}},
	}
	defer func() {
		if err != nil {
			_ = p.closeBut(old)
		}
	}()
	connected, receiving := maps.Clone(old.brokers), maps.Clone(old.receivers)
	maps.DeleteFunc(connected, func(name string, _ broker) bool { return !sameConnection(c, old.config, name) })
	maps.DeleteFunc(receiving, func(route string, _ gobridge.Receiver) bool { return !sameSource(c, old.config, route) })
	if p.brokers, err = openBrokers(c, connected, log); err != nil {
		return nil, err
	}
	if p.receivers, err = p.brokers.receivers(c, receiving); err != nil {
		return nil, err
	}
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		for _, binding := range slices.Sorted(maps.Keys(c.Routes[route].Bindings)) {
			if err := p.addSender(route, binding, old); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// addSender makes the sender of a binding, or takes the one that old has.
func (p *parts) addSender(route, binding string, old *parts) error {
	at := [2]string{route, binding}
	b := p.config.Routes[route].Bindings[binding]
	if from, ok := sameDestination(p.config, old.config, route, binding); ok {
		p.senders.of[at] = old.senders.of[from]
		if closer := old.senders.closers[from]; closer != nil {
			p.senders.closers[at] = closer
		}
		return nil
	}
	sender, err := p.brokers.sender(p.config, route, binding)
	switch {
	case err != nil:
		return err
	case sender != nil:
	case b.File != nil:
		if sender, err = jsonlines.OpenFile(b.File.Path, jsonlines.Options{}); err != nil {
			return &failure{fmt.Errorf("routes.%s.bindings.%s: %w", route, binding, err)}
		}
	default:
		sender = p.terminal
	}
	p.senders.of[at] = sender
	if closer, ok := sender.(io.Closer); ok {
		p.senders.closers[at] = closer
	}
	return nil
}

// Close closes everything.
func (p *parts) Close() error {
	return p.closeBut(&parts{config: &config.Config{}, senders: &senders{}})
}

// closeBut closes what other does not have too: senders before their connections.
func (p *parts) closeBut(other *parts) error {
	kept := map[io.Closer]bool{}
	for _, c := range other.senders.closers {
		kept[c] = true
	}
	var errs []error
	for _, at := range slices.SortedFunc(maps.Keys(p.senders.closers), compareNames) {
		if c := p.senders.closers[at]; !kept[c] {
			kept[c] = true
			errs = append(errs, c.Close())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.brokers)) {
		if sameConnection(p.config, other.config, name) {
			continue
		}
		if err := p.brokers[name].Close(); err != nil {
			errs = append(errs, fmt.Errorf("close connection %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func compareNames(a, b [2]string) int { return slices.Compare(a[:], b[:]) }

// sameConnection reports whether two configurations share a connection.
func sameConnection(a, b *config.Config, name string) bool {
	_, inA := a.Connections[name]
	_, inB := b.Connections[name]
	return inA && inB && a.Same(b, "connections", name)
}

// sameSource reports whether two configurations have a route, and its source is the
// same in both.
func sameSource(a, b *config.Config, route string) bool {
	_, inA := a.Routes[route]
	_, inB := b.Routes[route]
	if !inA || !inB {
		return false
	}
	name, kind := a.Routes[route].Source.Connection()
	return a.Same(b, "routes", route, "source") && (kind == "" || sameConnection(a, b, name))
}

// sameRoute reports whether two configurations have a route, and it is the same in
// both with all that it uses.
func sameRoute(a, b *config.Config, route string) bool {
	if !sameSource(a, b, route) || !a.Same(b, "routes", route) {
		return false
	}
	for _, binding := range a.Routes[route].Bindings {
		if name, kind := binding.Connection(); kind != "" && !sameConnection(a, b, name) {
			return false
		}
	}
	return true
}

// sameDestination finds the binding of old, if there is any, whose sender is that
// of a binding of c too: the one of the same name, or of the same file.
func sameDestination(c, old *config.Config, route, binding string) (at [2]string, ok bool) {
	b := c.Routes[route].Bindings[binding]
	if b.File != nil {
		return bindingOfFile(old, b.File.Path)
	}
	at = [2]string{route, binding}
	before, ok := old.Routes[route].Bindings[binding]
	if !ok {
		return at, false
	}
	place := func(kind string) []string { return []string{"routes", route, "bindings", binding, kind} }
	name, kind := b.Connection()
	switch {
	case kind == "aws":
		return at, c.Same(old, place("sqs")...) && c.Same(old, place("sns")...) && sameConnection(c, old, name)
	case kind != "":
		return at, c.Same(old, place(kind)...) && sameConnection(c, old, name)
	case b.Webhook != nil:
		return at, c.Same(old, place("webhook")...) && b.Concurrency == before.Concurrency
	}
	return at, b.Stdout != nil && before.Stdout != nil
}

// bindingOfFile returns the binding that writes to a file, of which there is one at
// most.
func bindingOfFile(c *config.Config, path string) (at [2]string, ok bool) {
	path = absolute(path)
	for route, r := range c.Routes {
		for binding, b := range r.Bindings {
			if b.File != nil && absolute(b.File.Path) == path {
				return [2]string{route, binding}, true
			}
		}
	}
	return at, false
}

// absolute returns a path as it is from the root, as far as that is known.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return filepath.Clean(path)
}
