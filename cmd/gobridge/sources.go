package main

import (
	"context"
	"sync"

	"gobridge"
	"gobridge/bridge"
)

// sources are the receivers that run, by route. They can be exchanged meanwhile.
type sources struct {
	bridge *bridge.Bridge

	mu      sync.Mutex
	taking  context.Context // nil before run
	all     map[string]*source
	running sync.WaitGroup // nothing is added once taking has ended and mu has been held
}

// source is one receiver.
type source struct {
	receiver gobridge.Receiver
	stop     context.CancelFunc
	stopped  chan struct{}
}

// run receives until ctx ends and what was under way is done.
func (s *sources) run(ctx context.Context) {
	s.mu.Lock()
	s.taking = ctx
	for route, one := range s.all {
		s.launch(route, one)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // whoever is starting one has done so
	s.running.Wait()
}

// start adds the receiver of a route that has none, and runs it if the others run.
func (s *sources) start(route string, receiver gobridge.Receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &source{receiver: receiver}
	s.all[route] = one
	if s.taking != nil && s.taking.Err() == nil {
		s.launch(route, one)
	}
}

// launch runs a receiver. The caller holds mu.
//
//nolint:contextcheck,nolintlint // it runs for as long as the process takes messages
func (s *sources) launch(route string, one *source) {
	ctx, stop := context.WithCancel(s.taking)
	one.stop, one.stopped = stop, make(chan struct{})
	handle := s.bridge.Route(route)
	s.running.Go(func() {
		defer close(one.stopped)
		defer stop()
		_ = handle.Receive(ctx, one.receiver) // it ends with ctx alone
	})
}

// stop stops a route's receiver, if it has one, and returns it when what was under way
// is done, nil for none.
func (s *sources) stop(route string) gobridge.Receiver {
	s.mu.Lock()
	one := s.all[route]
	delete(s.all, route)
	s.mu.Unlock()
	if one == nil {
		return nil
	}
	if one.stop != nil {
		one.stop()
		<-one.stopped
	}
	return one.receiver
}
