package bridge

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// openAfter is how many keys must fail, with no success in between, for the
	// destination to be taken for down; openIdle is enough when nothing else is
	// under way that could tell.
	openAfter = 3
	openIdle  = 2

	// maxProbe is the longest pause between two probes of a destination.
	maxProbe = 30 * time.Second
	// maxRetryAfter is the longest that a destination can ask to be left alone.
	maxRetryAfter = time.Hour

	// maxMemory bounds the records whose failures are remembered. Forgetting one
	// gives it the benefit of the doubt once more.
	maxMemory = 4096
)

// keyID is an ordering key, or a record without one.
type keyID struct {
	keyed bool
	name  string
}

// verdict is whose fault a failure is.
type verdict uint8

const (
	unclear verdict = iota // nobody can tell (yet)
	own                    // the record's
	theirs                 // the destination's: the circuit is open
)

// circuit knows whether a destination takes anything, and judges failures. The
// rules are in the package comment. Ticks order what happened: every start of a
// send and every failure has one.
type circuit struct {
	retry Retry

	mu sync.Mutex

	open      bool
	since     time.Time // when it opened or closed
	said      bool      // people have been told that it is open
	nextProbe time.Time
	probes    int            // failures in a row while open
	probed    map[keyID]bool // keys tried while open
	rounds    int            // how often all within reach have been
	asked     uint64         // when the destination last asked to be left alone
	lastErr   string
	lastErrAt time.Time

	tick    uint64
	failing map[keyID]uint64    // keys that failed with no success of any key since: when
	memory  map[string]*failure // by envelope ID: the last failure of a record

	// The successes of two different keys whose sends began last, so that for any key
	// there is the last one of another.
	passed, passedBefore success
}

type success struct {
	key  keyID
	tick uint64 // when its send began
}

// failure is what is remembered of a record that failed.
type failure struct {
	tick  uint64
	count int
	proof uint64 // what began up to then has told of this record, or before it failed first
	again bool   // another key got through between the last failure and one before that nothing had told of
	odd   bool   // that was so when the destination was said to be down
}

func newCircuit(retry Retry) *circuit {
	return &circuit{
		retry: retry, since: time.Now(),
		failing: map[keyID]uint64{}, memory: map[string]*failure{}, probed: map[keyID]bool{},
	}
}

// start returns the tick of a send that begins now.
func (c *circuit) start() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	return c.tick
}

// pass notes a success of a send that began at tick, and reports whether that
// closed the circuit, and how long it had been open.
func (c *circuit) pass(key keyID, id string, tick uint64) (closed bool, openFor time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.noteSuccess(success{key, tick})
	if len(c.memory) > 0 {
		delete(c.memory, id)
	}
	for k, failed := range c.failing {
		if failed < tick {
			delete(c.failing, k)
		}
	}
	return c.close(now, tick)
}

// noteSuccess keeps the two that began last, in whatever order they end.
func (c *circuit) noteSuccess(s success) {
	switch {
	case s.key == c.passed.key:
		c.passed.tick = max(c.passed.tick, s.tick)
	case s.tick > c.passed.tick:
		c.passed, c.passedBefore = s, c.passed
	case s.key == c.passedBefore.key || s.tick > c.passedBefore.tick:
		c.passedBefore = success{s.key, max(s.tick, c.passedBefore.tick)}
	}
}

// told notes that the success of a send that began at tick has told of a record's
// failure: it tells of no other one.
func (c *circuit) told(id string, tick uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.memory[id]; f != nil {
		f.proof = max(f.proof, tick)
	}
}

// answered notes that the destination judged a record, in a send that began at
// tick, and refused it: it is there.
func (c *circuit) answered(id string, tick uint64) (closed bool, openFor time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, id)
	return c.close(time.Now(), tick)
}

// close closes the circuit after an answer to a send that began at tick. What
// was under way when the destination asked to be left alone doesn't count.
func (c *circuit) close(now time.Time, tick uint64) (bool, time.Duration) {
	if !c.open || tick <= c.asked {
		return false, 0
	}
	openFor := now.Sub(c.since)
	c.open, c.since, c.probes, c.nextProbe = false, now, 0, time.Time{}
	clear(c.probed)
	clear(c.failing)
	return true, openFor
}

// other returns the success of another key whose send began last.
func (c *circuit) other(key keyID) success {
	if c.passed.key != key {
		return c.passed
	}
	return c.passedBefore
}

// fail notes a failure that may be anybody's, and returns its tick.
func (c *circuit) fail(key keyID, id string, err string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteError(err)
	c.tick++
	if f := c.remember(key, id); !f.again { // a record known to fail by itself says nothing of the destination
		c.failing[key] = c.tick
	}
	return c.tick
}

// remember notes a failure of a record at the newest tick.
func (c *circuit) remember(key keyID, id string) *failure {
	last := c.other(key)
	f := c.memory[id]
	if f == nil {
		if len(c.memory) >= maxMemory {
			for any := range c.memory {
				delete(c.memory, any)
				break
			}
		}
		f = &failure{proof: c.tick}
		c.memory[id] = f
	} else if f.again = last.tick > f.proof; f.again {
		f.proof = c.tick
	}
	f.tick = c.tick
	f.count++
	return f
}

// odd notes that a record was answered as if the destination were down, and
// reports whether that is so for this record only: another key got through since
// it was answered like that before, now or earlier.
func (c *circuit) odd(key keyID, id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	f := c.remember(key, id)
	f.odd = f.odd || f.again
	return f.odd
}

// judge says whose fault the failure of a record at tick is.
func (c *circuit) judge(id string, tick uint64) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.memory[id]
	switch {
	case f != nil && f.tick == tick && f.again:
		return own
	case c.open:
		return theirs
	}
	return unclear
}

// down reports whether so many keys have failed that it must be the
// destination.
func (c *circuit) down(idle bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.open && (len(c.failing) >= openAfter || idle && len(c.failing) >= openIdle)
}

// trip opens the circuit, or keeps it open after a failed probe. After, unless
// zero, is how long the destination asked for. It reports whether the circuit
// was closed before.
func (c *circuit) trip(err string, after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.noteError(err)
	opened := !c.open
	if opened {
		c.open, c.since, c.probes, c.said = true, now, 0, false
		clear(c.probed)
		c.rounds = 0
	}
	pause := backoff(c.retry.MinBackoff, min(c.retry.MaxBackoff, maxProbe), c.probes)
	if after > 0 {
		pause = min(after, maxRetryAfter)
		c.asked = c.tick
	}
	// Sends that were under way when the circuit opened must not push the probe
	// further away, unless one was asked to wait longer.
	if opened || after > 0 && now.Add(pause).After(c.nextProbe) {
		c.nextProbe = now.Add(pause)
	}
	return opened
}

// probeFailed notes that a probe failed and sets the next one.
func (c *circuit) probeFailed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return
	}
	c.probes++
	next := time.Now().Add(backoff(c.retry.MinBackoff, min(c.retry.MaxBackoff, maxProbe), c.probes))
	if next.After(c.nextProbe) {
		c.nextProbe = next
	}
}

func (c *circuit) noteError(err string) {
	c.lastErr, c.lastErrAt = err, time.Now()
}

// tell reports whether people are to be told that the circuit is open, which they
// are once for each time: when it has just opened and that is news, or when it has
// been open for a while.
func (c *circuit) tell(news bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open || c.said || !news && time.Since(c.since) < repeatAfter {
		return false
	}
	c.said = true
	return true
}

// saidSo reports whether people were told that the circuit was open last.
func (c *circuit) saidSo() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// fresh reports whether the key has not been probed since the circuit opened.
func (c *circuit) fresh(key keyID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.probed[key]
}

// noteProbe notes that the key is being probed.
func (c *circuit) noteProbe(key keyID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.probed) < maxMemory {
		c.probed[key] = true
	}
}

// startOver forgets which keys have been probed, and reaches further.
func (c *circuit) startOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.probed) >= probeWindow<<c.rounds && probeWindow<<c.rounds < maxMemory {
		c.rounds++
	}
	clear(c.probed)
}

// reach returns how many keys are looked through for one to probe.
func (c *circuit) reach() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return probeWindow << c.rounds
}

// state returns whether the circuit is open, and when to probe then.
func (c *circuit) state() (open bool, nextProbe time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.nextProbe
}

// probeNow makes the next probe due.
func (c *circuit) probeNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open {
		c.nextProbe = time.Now()
	}
}

// pauseOf returns how long a record waits whose failures nobody can place.
func (c *circuit) pauseOf(id string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if f := c.memory[id]; f != nil {
		n = f.count - 1
	}
	return backoff(c.retry.MinBackoff, min(c.retry.MaxBackoff, maxProbe), n)
}

// forget drops what is remembered of a record that has ended.
func (c *circuit) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, id)
}

// backoff returns the pause after n earlier ones: least, doubled n times, most
// at most, less a random part of up to half, so that what failed together does
// not come back together.
func backoff(least, most time.Duration, n int) time.Duration {
	pause := most
	if n < 62 && least<<n>>n == least && least<<n < most {
		pause = least << n
	}
	pause = min(pause, most)
	return pause - rand.N(pause/2+1)
}
