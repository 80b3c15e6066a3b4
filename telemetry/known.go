package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
)

// known is a map that is read without a lock and without making garbage, and that
// grows seldom. The zero value is empty.
type known[K comparable, V any] struct {
	mu  sync.Mutex
	now atomic.Pointer[map[K]V]
}

func (k *known[K, V]) all() map[K]V {
	if m := k.now.Load(); m != nil {
		return *m
	}
	return nil
}

// get returns the value of a key, which is made if it is new.
func (k *known[K, V]) get(key K, make func() V) V {
	if v, ok := k.all()[key]; ok {
		return v
	}
	return k.add(key, make)
}

func (k *known[K, V]) add(key K, make func() V) V {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.all()[key]; ok {
		return v
	}
	next := maps.Clone(k.all())
	if next == nil {
		next = map[K]V{}
	}
	v := make()
	next[key] = v
	k.now.Store(&next)
	return v
}
