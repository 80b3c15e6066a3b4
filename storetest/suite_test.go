package storetest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"gobridge"
	"gobridge/store/memory"
)

// memoryBackend is the store that the suite itself is tested with.
func memoryBackend() Backend {
	return Backend{Open: func(_ testing.TB, options Options) Database {
		return memoryDatabase{memory.New(memory.Options{
			Now:           options.Now,
			Retention:     options.Retention,
			DeadRetention: options.DeadRetention,
			MaxDead:       options.MaxDead,
			MaxDeadBytes:  options.MaxDeadBytes,
			StaleWindow:   options.StaleWindow,
			MaxSkew:       options.MaxSkew,
		})}
	}}
}

type memoryDatabase struct{ store *memory.Store }

func (d memoryDatabase) Store(_ testing.TB, now func() time.Time) gobridge.Store {
	return d.store.Handle(now)
}

func (d memoryDatabase) Snapshot(testing.TB) func(testing.TB) Database {
	copied := d.store.Snapshot()
	return func(testing.TB) Database { return memoryDatabase{copied} }
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHealthyStorePasses(t *testing.T) { Run(t, memoryBackend()) }
