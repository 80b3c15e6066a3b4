package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"gobridge"
)

// Fault is what happens to a call of a store that [Faulty] made.
type Fault uint8

// The faults.
const (
	// NoFault: the call is made, and its answer comes back.
	NoFault Fault = iota
	// FailBefore: the call is not made, and its caller gets an error.
	FailBefore
	// FailAfter: the call is made, but its answer is lost; its caller gets an
	// error and no result, and can't tell it from [FailBefore].
	FailAfter
)

// ErrInjected is the cause of every error that a [Faulty] store makes up.
var ErrInjected = errors.New("injected fault")

// Faulty returns a store that passes each call on to store, except where decide
// has it fail. Decide is called once for each call with the name of the method
// ("Persist", "Claim" and so on; Limits never fails), from the goroutine of the
// call. The result is a [gobridge.Notifier] and a [gobridge.Leaser] if store
// is; those two don't fail.
func Faulty(store gobridge.Store, decide func(method string) Fault) gobridge.Store {
	f := &faulty{store: store, decide: decide}
	notifier, notifies := store.(gobridge.Notifier)
	leaser, leases := store.(gobridge.Leaser)
	switch {
	case notifies && leases:
		return struct {
			*faulty
			gobridge.Notifier
			gobridge.Leaser
		}{f, notifier, leaser}
	case notifies:
		return struct {
			*faulty
			gobridge.Notifier
		}{f, notifier}
	case leases:
		return struct {
			*faulty
			gobridge.Leaser
		}{f, leaser}
	}
	return f
}

// SeededFaults returns a decision for [Faulty] that lets a share of the calls
// fail, before and after in equal parts, in an order that the seed decides. It
// is safe for concurrent use.
func SeededFaults(seed uint64, share float64) func(method string) Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(string) Fault {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= share {
			return NoFault
		}
		return FailBefore + Fault(rng.IntN(2))
	}
}

type faulty struct {
	store  gobridge.Store
	decide func(string) Fault
}

// around makes a call unless it is to fail before, and loses its answer if it
// is to fail after.
func around[T any](f *faulty, method string, p gobridge.Partition, call func() (T, error)) (T, error) {
	var none T
	fault := f.decide(method)
	failure := &gobridge.Error{Op: method, Partition: p, Err: ErrInjected}
	if fault == FailBefore {
		return none, failure
	}
	out, err := call()
	if fault == FailAfter {
		return none, failure
	}
	return out, err
}

// aroundErr is around for calls that return an error only.
func aroundErr(f *faulty, method string, call func() error) error {
	_, err := around(f, method, "", func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (f *faulty) Limits() gobridge.Limits { return f.store.Limits() }

func (f *faulty) Persist(ctx context.Context, records []gobridge.Record) error {
	return aroundErr(f, "Persist", func() error { return f.store.Persist(ctx, records) })
}

func (f *faulty) Claim(ctx context.Context, request gobridge.ClaimRequest) ([]gobridge.Record, error) {
	return around(f, "Claim", request.Partition, func() ([]gobridge.Record, error) { return f.store.Claim(ctx, request) })
}

func (f *faulty) Complete(ctx context.Context, token gobridge.Token, completions []gobridge.Completion) error {
	return aroundErr(f, "Complete", func() error { return f.store.Complete(ctx, token, completions) })
}

func (f *faulty) Release(ctx context.Context, token gobridge.Token, releases []gobridge.Release) error {
	return aroundErr(f, "Release", func() error { return f.store.Release(ctx, token, releases) })
}

func (f *faulty) DeadLetter(ctx context.Context, token gobridge.Token, burials []gobridge.Burial) error {
	return aroundErr(f, "DeadLetter", func() error { return f.store.DeadLetter(ctx, token, burials) })
}

func (f *faulty) Sweep(ctx context.Context, request gobridge.SweepRequest) (gobridge.SweepResult, error) {
	return around(f, "Sweep", request.Partition, func() (gobridge.SweepResult, error) { return f.store.Sweep(ctx, request) })
}

func (f *faulty) QueryPending(ctx context.Context, p gobridge.Partition, limit int) ([]gobridge.Record, error) {
	return around(f, "QueryPending", p, func() ([]gobridge.Record, error) { return f.store.QueryPending(ctx, p, limit) })
}

func (f *faulty) CountPending(ctx context.Context, p gobridge.Partition, limit int) (int, error) {
	return around(f, "CountPending", p, func() (int, error) { return f.store.CountPending(ctx, p, limit) })
}

func (f *faulty) QueryDead(ctx context.Context, query gobridge.DeadQuery) (gobridge.DeadPage, error) {
	return around(f, "QueryDead", "", func() (gobridge.DeadPage, error) { return f.store.QueryDead(ctx, query) })
}

func (f *faulty) Redrive(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	return around(f, "Redrive", "", func() (gobridge.BulkResult, error) { return f.store.Redrive(ctx, request) })
}

func (f *faulty) Discard(ctx context.Context, request gobridge.BulkRequest) (gobridge.BulkResult, error) {
	return around(f, "Discard", "", func() (gobridge.BulkResult, error) { return f.store.Discard(ctx, request) })
}

func (f *faulty) Stats(ctx context.Context, partitions ...gobridge.Partition) ([]gobridge.Stats, error) {
	return around(f, "Stats", "", func() ([]gobridge.Stats, error) { return f.store.Stats(ctx, partitions...) })
}

func (f *faulty) Get(ctx context.Context, ref gobridge.Ref) (gobridge.Record, error) {
	return around(f, "Get", ref.Partition, func() (gobridge.Record, error) { return f.store.Get(ctx, ref) })
}

func (f *faulty) Explain(ctx context.Context, query gobridge.ExplainQuery) (gobridge.Explanation, error) {
	return around(f, "Explain", query.Partition, func() (gobridge.Explanation, error) { return f.store.Explain(ctx, query) })
}

func (f *faulty) SetControl(ctx context.Context, control gobridge.Control) error {
	return aroundErr(f, "SetControl", func() error { return f.store.SetControl(ctx, control) })
}

func (f *faulty) ClearControl(ctx context.Context, control gobridge.Control) error {
	return aroundErr(f, "ClearControl", func() error { return f.store.ClearControl(ctx, control) })
}

func (f *faulty) ListControls(ctx context.Context) ([]gobridge.Control, error) {
	return around(f, "ListControls", "", func() ([]gobridge.Control, error) { return f.store.ListControls(ctx) })
}

func (f *faulty) Retry(ctx context.Context, request gobridge.RetryRequest) (int, error) {
	return around(f, "Retry", "", func() (int, error) { return f.store.Retry(ctx, request) })
}

func (f *faulty) ListAudit(ctx context.Context, limit int) ([]gobridge.AuditEntry, error) {
	return around(f, "ListAudit", "", func() ([]gobridge.AuditEntry, error) { return f.store.ListAudit(ctx, limit) })
}

func (f *faulty) Report(ctx context.Context, p gobridge.Partition, token gobridge.Token, condition gobridge.Condition) error {
	return aroundErr(f, "Report", func() error { return f.store.Report(ctx, p, token, condition) })
}
