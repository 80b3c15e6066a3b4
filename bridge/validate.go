package bridge

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"gobridge"
)

// withDefaults returns the options with every zero value replaced, or all that
// is wrong with them.
func (o Options) withDefaults(store gobridge.Store) (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if o.Leases == nil {
		if leaser, ok := store.(gobridge.Leaser); ok {
			o.Leases = leaser.Leases()
		}
		if o.Leases == nil {
			wrong("Options.Leases is nil and the store brings no leases of its own")
		}
	}
	positive := func(name string, d *time.Duration, or time.Duration) {
		if *d < 0 {
			wrong("%s is %s; it must not be negative", name, *d)
		}
		*d = cmp.Or(*d, or)
	}
	positive("Options.LeaseTerm", &o.LeaseTerm, 5*time.Second)
	positive("Options.Grace", &o.Grace, 10*time.Second)
	positive("Options.PollInterval", &o.PollInterval, time.Second)
	if o.LeaseTerm > 0 && o.LeaseTerm < 10*time.Millisecond {
		wrong("Options.LeaseTerm is %s; the shortest is 10ms", o.LeaseTerm)
	}
	if o.Removed > RemovedRefuse {
		wrong("Options.Removed is %d; it is RemovedWarn or RemovedRefuse", o.Removed)
	}
	o.Owner = cmp.Or(o.Owner, newOwner())
	if i := strings.IndexFunc(o.Owner, unicode.IsControl); i >= 0 {
		wrong("Options.Owner %q has a control character", o.Owner)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	routes := make([]Route, len(o.Routes))
	seen := map[string]bool{}
	for i, r := range o.Routes {
		if seen[strings.ToLower(r.Name)] {
			wrong("Options.Routes[%d]: name %q is taken by an earlier route; names differ in more than upper and lower case", i, r.Name)
		}
		seen[strings.ToLower(r.Name)] = true
		var err error
		if routes[i], err = r.withDefaults(store.Limits()); err != nil {
			wrong("Options.Routes[%d]: %w", i, err)
		}
	}
	o.Routes = routes
	return o, errors.Join(errs...)
}

func (r Route) withDefaults(limits gobridge.Limits) (Route, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := gobridge.CheckName(r.Name); err != nil {
		wrong("%w", err)
	}
	if r.ExpireAfter < 0 {
		wrong("route %q: ExpireAfter is %s; it must not be negative", r.Name, r.ExpireAfter)
	}
	if r.OnExpire > ExpireDeadLetter {
		wrong("route %q: OnExpire is %d; it is ExpireDrop or ExpireDeadLetter", r.Name, r.OnExpire)
	}
	if r.OnReject > RejectDiscard {
		wrong("route %q: OnReject is %d; it is RejectDeadLetter or RejectDiscard", r.Name, r.OnReject)
	}
	if r.Partitions < 0 || r.Partitions > MaxPartitions {
		wrong("route %q: Partitions is %d; it is 1 to %d", r.Name, r.Partitions, MaxPartitions)
	}
	r.Partitions = min(max(r.Partitions, 1), MaxPartitions)
	if len(r.Bindings) == 0 {
		wrong("route %q has no bindings; it needs at least one", r.Name)
	}
	if most := limits.MaxBindings; most > 0 && len(r.Bindings) > most {
		wrong("route %q has %d bindings; the store takes a message for at most %d", r.Name, len(r.Bindings), most)
	}
	bindings := make([]Binding, len(r.Bindings))
	seen := map[string]bool{}
	for i, b := range r.Bindings {
		if seen[strings.ToLower(b.Name)] {
			wrong("route %q: binding name %q is taken by an earlier binding", r.Name, b.Name)
		}
		seen[strings.ToLower(b.Name)] = true
		var err error
		if bindings[i], err = b.withDefaults(); err != nil {
			wrong("route %q, binding %q: %w", r.Name, b.Name, err)
		}
		if most := limits.MaxBinding; most > 0 && len(b.Name) > most {
			wrong("route %q, binding %q: the name has %d bytes; the store takes %d", r.Name, b.Name, len(b.Name), most)
		}
		partition := gobridge.NewShard(r.Name, b.Name, r.Partitions-1, r.Partitions)
		if most := limits.MaxPartition; most > 0 && len(partition) > most {
			wrong("route %q, binding %q: the partition %q has %d bytes; the store takes %d", r.Name, b.Name, partition, len(partition), most)
		}
	}
	r.Bindings = bindings
	return r, errors.Join(errs...)
}

func (b Binding) withDefaults() (Binding, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := gobridge.CheckName(b.Name); err != nil {
		wrong("%w", err)
	}
	if b.Sender == nil {
		wrong("Sender is nil")
	}
	notNegative := func(name string, v float64) {
		if !(v >= 0) { // NaN too
			wrong("%s is %v; it must not be negative", name, v)
		}
	}
	notNegative("Retry.Attempts", float64(b.Retry.Attempts))
	notNegative("Retry.MinBackoff", b.Retry.MinBackoff.Seconds())
	notNegative("Retry.MaxBackoff", b.Retry.MaxBackoff.Seconds())
	notNegative("MaxOutboxDepth", float64(b.MaxOutboxDepth))
	notNegative("Rate", b.Rate)
	notNegative("Concurrency", float64(b.Concurrency))
	notNegative("BatchBytes", float64(b.BatchBytes))
	notNegative("Timeout", b.Timeout.Seconds())
	b.Retry.Attempts = cmp.Or(b.Retry.Attempts, 10)
	b.Retry.MinBackoff = cmp.Or(b.Retry.MinBackoff, min(time.Second, cmp.Or(b.Retry.MaxBackoff, time.Second)))
	b.Retry.MaxBackoff = cmp.Or(b.Retry.MaxBackoff, max(5*time.Minute, b.Retry.MinBackoff))
	if b.Retry.MaxBackoff < b.Retry.MinBackoff {
		wrong("Retry.MaxBackoff is %s, less than MinBackoff, %s", b.Retry.MaxBackoff, b.Retry.MinBackoff)
	}
	if b.OnFailure > FailHaltKey {
		wrong("OnFailure is %d; it is FailDeadLetter, FailDiscard or FailHaltKey", b.OnFailure)
	}
	if b.OnFull > FullDeadLetter {
		wrong("OnFull is %d; it is FullReject or FullDeadLetter", b.OnFull)
	}
	b.Concurrency = cmp.Or(b.Concurrency, 16)
	b.BatchBytes = cmp.Or(b.BatchBytes, 8<<20)
	b.Timeout = cmp.Or(b.Timeout, 30*time.Second)
	return b, errors.Join(errs...)
}

// newOwner names this process, so that people recognise it and no other has
// the name.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
