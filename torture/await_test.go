package torture

import (
	"fmt"
	"time"
)

// patience bounds the wait for something that is sure to happen.
const patience = 40 * time.Second

// await waits until a condition holds.
func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("seed %d: waited %s for this: %s; the log:%s", r.seed, patience, what, r.book.tail(15))
		}
	}
}

// awaitReady waits until the process answers.
func (r *rig) awaitReady(p *process, address string) {
	r.t.Helper()
	r.await("the process listens", func() bool {
		r.mustRun(p)
		return answers(address)
	})
}

// awaitAccepted waits for so many more acknowledgements.
func (r *rig) awaitAccepted(more int) {
	r.t.Helper()
	from := r.acked()
	r.await(fmt.Sprintf("%d more messages are acknowledged", more), func() bool { return r.acked() >= from+more })
}

// acked counts the acknowledgements.
func (r *rig) acked() int { return r.history.count(func(e event) bool { return e.kind == acked }) }
