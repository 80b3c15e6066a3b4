package leasetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/store/memory"
)

// memoryLeases are leases in memory, with a bug where there is one.
type memoryLeases struct {
	leases *memory.Leases
	bug    *bug
}

func (d memoryLeases) Leases(_ testing.TB, now func() time.Time) gobridge.LeaseStore {
	handle := d.leases.Handle(now)
	if d.bug == nil {
		return handle
	}
	return broken{LeaseStore: handle, bug: d.bug, now: now}
}

// durableLeases outlive their handles, unless they forget.
type durableLeases struct {
	memoryLeases
	forget bool
}

func (d durableLeases) Reopen(testing.TB) Database {
	if d.forget {
		d.leases = memory.NewLeases(nil)
	}
	return d
}

func TestGoodLeasesPass(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		Run(t, Backend{Open: func(testing.TB) Database { return memoryLeases{leases: memory.NewLeases(nil)} }})
	})
	t.Run("durable", func(t *testing.T) {
		Run(t, Backend{Open: func(testing.TB) Database {
			return durableLeases{memoryLeases: memoryLeases{leases: memory.NewLeases(nil)}}
		}})
	})
}

// TestEveryCaseCatchesItsBug runs each case on leases that break what it is
// about, and expects it to fail.
func TestEveryCaseCatchesItsBug(t *testing.T) {
	byName := map[string]testCase{}
	for _, c := range cases() {
		byName[c.name] = c
	}
	caught := map[string]bool{"LeasesSurviveReopening": true} // has its own test
	for _, b := range bugs() {
		c, ok := byName[b.caughtBy]
		if !ok {
			t.Errorf("there is no case %q", b.caughtBy)
			continue
		}
		caught[c.name] = true
		t.Run(b.caughtBy+"/"+b.name, func(t *testing.T) {
			backend := Backend{Open: func(testing.TB) Database {
				return memoryLeases{leases: memory.NewLeases(nil), bug: &b}
			}}
			mustFail(t, c, backend)
		})
	}
	for name := range byName {
		if !caught[name] {
			t.Errorf("no broken lease store shows that case %s can fail", name)
		}
	}
}

func TestReopeningCatchesForgetfulLeases(t *testing.T) {
	for _, c := range cases() {
		if c.durable {
			mustFail(t, c, Backend{Open: func(testing.TB) Database {
				return durableLeases{memoryLeases: memoryLeases{leases: memory.NewLeases(nil)}, forget: true}
			}})
		}
	}
}

func TestCasesAreNamedOnceAndExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are named %s", c.name)
		}
		seen[c.name] = true
		if c.why == "" || c.run == nil {
			t.Errorf("case %s lacks its explanation or its code", c.name)
		}
	}
}

// mustFail runs a case and fails unless the case does.
func mustFail(t *testing.T, c testCase, backend Backend) {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.check(r, backend)
	}()
	<-done
	r.finish()
	if !r.Failed() {
		t.Errorf("%s passed on a broken lease store", c.name)
	}
	if log := strings.Join(r.log, "\n"); r.Failed() && !strings.Contains(log, c.why) {
		t.Errorf("%s failed without its explanation: %s", c.name, log)
	}
}

// recorder is a testing.TB whose failures are its own.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	log      []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) finish() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.log = append(r.log, text)
}

func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.note(true, fmt.Sprintf(format, args...))
	runtime.Goexit()
}
