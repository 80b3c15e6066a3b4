package bridge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"gobridge"
)

const (
	// minPoll is the pause after a claim that found something, before another
	// is tried without being woken.
	minPoll = 20 * time.Millisecond
	// sweepEvery is the pause between two steps of housekeeping, sweepAgain the
	// pause when there was more to do, sweepLimit the size of a step.
	sweepEvery = 2 * time.Second
	sweepAgain = 20 * time.Millisecond
	sweepLimit = 256
	// settleTimeout bounds one settling call, and what is settled after the
	// last send of a shutdown.
	settleTimeout = 10 * time.Second
	// judgeAfter is how long a failure waits for a sign of whose fault it is.
	judgeAfter = time.Second
)

// drainer drains one partition under one token: it claims, sends, and settles,
// until it is told to stop or loses the partition.
//
// One goroutine, the loop, owns all fields but those that say otherwise. Store
// calls and sends run beside it and report to it, so that nothing slow holds up
// anything else: one claim at a time, one settling call at a time with whatever
// has come together meanwhile, one sweep, and a goroutine for each send.
type drainer struct {
	*destination
	token  gobridge.Token
	once   bool            // end when nothing is claimable
	work   context.Context // ends with the lease
	sends  context.Context // ends with the lease or the grace of a shutdown
	intake context.Context // ends when a shutdown begins
	ended  func() bool     // whether the lease has ended: looks at the clock, too
	tasks  sync.WaitGroup  // everything beside the loop, but for sends

	// queueing ends with the intake, the lease, or when the circuit opens: sends
	// wait for their turn under it, for nothing has been sent yet.
	queueing     context.Context
	stopQueueing context.CancelFunc

	items  map[string]*item // what is claimed and not settled, by envelope ID
	bytes  int64            // of the payloads and headers among them
	groups map[string]*group
	ready  queue

	sending   int  // sends under way
	unsettled int  // operations on their way to the store
	alone     bool // the send under way is to be the only one
	clearing  bool // the next one is to be, and the rest is being put back
	probing   bool // a probe is being claimed or sent
	mayProbe  bool // with once: a probe is left
	stopping  bool
	suspects  []suspect

	limit    int  // records in a claim at most
	more     bool // a claim may find something
	claiming bool
	empty    bool // the last claim found nothing
	polled   time.Time
	pause    time.Duration // to the next poll
	nextDue  time.Time     // by the monotonic clock: a record released here is due
	failures int           // claims that failed in a row

	sweeping  bool
	nextSweep time.Time

	refs []gobridge.Ref // of the newest claim

	jobs    chan job // to a sending goroutine that is idle
	over    chan struct{}
	results chan result
	claimed chan claim
	swept   chan sweep
	settler *settler

	reporter reporter

	status drainerStatus
}

// drainerStatus is what others may read of a drainer.
type drainerStatus struct {
	mu       sync.Mutex
	inFlight int
	held     int
	idle     bool
}

// serveUntilRetired is serve, which ends as by its intake when d is retired.
func (d *destination) serveUntilRetired(
	intake, work context.Context, token gobridge.Token, ended func() bool, once bool,
) error {
	d.serving <- struct{}{}
	defer func() { <-d.serving }()
	if d.retired.Err() != nil {
		return nil
	}
	intake, stop := context.WithCancel(intake)
	defer stop()
	defer context.AfterFunc(d.retired, stop)() //nolint:contextcheck // it ends with the setup of its route
	d.draining(1)
	defer d.draining(-1)
	return d.serve(intake, work, token, ended, once)
}

// serve is the bridge's serveFunc for a destination.
func (d *destination) serve(intake, work context.Context, token gobridge.Token, ended func() bool, once bool) error {
	work, cancelWork := context.WithCancelCause(work)
	defer cancelWork(nil)
	sends, cancelSends := context.WithCancelCause(work)
	defer cancelSends(nil)
	dr := &drainer{
		destination: d, token: token, once: once,
		work: work, sends: sends, intake: intake, ended: ended,
		items: map[string]*item{}, groups: map[string]*group{},
		limit: d.claims, more: true, pause: minPoll, polled: time.Now(), nextSweep: time.Now(),
		// Never blocks a sender, so that none outlives its send.
		results: make(chan result, d.binding.Concurrency),
		jobs:    make(chan job), over: make(chan struct{}),
		claimed: make(chan claim, 1), swept: make(chan sweep, 1),
		reporter: reporter{done: make(chan report, 1)},
	}
	dr.queueing, dr.stopQueueing = context.WithCancel(sends)
	defer func() { dr.stopQueueing() }()
	dr.settler = newSettler(dr)
	if dr.mayProbe, _ = d.circuit.state(); dr.mayProbe && once {
		d.circuit.probeNow()
	}
	d.quiet.Store(false)
	d.drainer.Store(dr)
	defer d.drainer.Store(nil)
	err := dr.loop(cancelSends) //nolint:contextcheck // its contexts differ in when they end, and are its fields
	close(dr.over)
	d.prober.CompareAndSwap(dr, nil)
	cancelWork(err)
	dr.tasks.Wait()
	dr.leaveStrays()
	return err
}

var (
	errGraceEnded = errors.New("the shutdown's grace period has ended")
	errStuck      = errors.New("the shutdown ended with sends or settling calls that did not return")
)

// loop runs until the drainer is done, and returns why if it had to.
func (d *drainer) loop(cancelSends context.CancelCauseFunc) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if d.intake.Err() != nil {
		return nil
	}
	intake := d.intake.Done()
	var grace, giveUp <-chan time.Time
	for {
		d.judge()
		d.startSends()
		d.startClaim()
		if !d.probing {
			d.prober.CompareAndSwap(d, nil)
		}
		d.startSweep()
		d.startReport()
		d.settler.kick()
		d.publishStatus()
		if d.done() {
			return nil
		}
		timer.Reset(d.wait())
		select {
		case <-timer.C:
		case <-d.wake:
			d.woken()
		case r := <-d.results:
			d.sent(r)
			d.sentMore()
		case c := <-d.claimed:
			if err := d.took(c); err != nil {
				return err
			}
		case s := <-d.settler.settled:
			d.settled(s)
		case r := <-d.reporter.done:
			d.reportDone(r)
		case s := <-d.swept:
			if err := d.sweepDone(s); err != nil {
				return err
			}
		case <-intake:
			intake = nil
			d.stop()
			grace = time.After(d.bridge.opts.Grace)
			giveUp = time.After(d.bridge.opts.Grace + settleTimeout)
		case <-grace:
			cancelSends(errGraceEnded)
		case <-giveUp:
			d.log(slog.LevelError, "shutdown gives up on sends that do not return", slog.Int("sends", d.sending))
			return errStuck
		case <-d.work.Done():
			return context.Cause(d.work)
		}
	}
}

// sentMore takes up what else has come back, so that it is settled together.
func (d *drainer) sentMore() {
	for {
		select {
		case r := <-d.results:
			d.sent(r)
		default:
			return
		}
	}
}

// done reports whether the drainer has nothing left to do and is to end.
func (d *drainer) done() bool {
	if d.claiming || d.sweeping || d.reporter.busy || d.sending > 0 || d.unsettled > 0 || len(d.suspects) > 0 {
		return false
	}
	if d.stopping {
		return true
	}
	if !d.once || len(d.items) > 0 {
		return false
	}
	open, _ := d.circuit.state()
	return open && !d.mayProbe || d.empty && !d.more
}

// stop ends the intake: what has not been sent goes back.
func (d *drainer) stop() {
	d.stopping = true
	d.stopQueueing()
	d.releaseQueued()
}

// releaseQueued puts everything back that waits to be sent.
func (d *drainer) releaseQueued() {
	for _, it := range d.items {
		if len(it.group.queue) > 0 {
			d.releaseTail(it.group, nil)
		}
	}
	d.ready.clear()
}

// underway reports whether something other than a suspect may still tell how
// the destination is.
func (d *drainer) underway() bool {
	open, _ := d.circuit.state()
	return d.sending > 0 || d.ready.len() > 0 || !open && !d.stopping && (d.claiming || d.more)
}

// wait returns how long the loop can sleep. Whatever is not a matter of time
// wakes it through a channel.
func (d *drainer) wait() time.Duration {
	now := time.Now()
	next := now.Add(time.Hour)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if !d.claiming && !d.stopping {
		if !d.more || d.failures > 0 {
			sooner(d.polled.Add(d.pollPause()))
			sooner(d.nextDue)
		} else if open, probe := d.circuit.state(); open && !d.probing && d.sending == 0 {
			if other := d.prober.Load(); other != nil && other != d {
				probe = now.Add(lookEvery)
			}
			sooner(probe)
		}
		if !d.sweeping {
			sooner(d.nextSweep)
		}
		sooner(d.reporter.when(d.circuit.condition()))
	}
	for i := range d.suspects {
		sooner(d.suspects[i].at.Add(judgeAfter))
	}
	return max(next.Sub(now), time.Millisecond)
}

func (d *drainer) publishStatus() {
	d.status.mu.Lock()
	defer d.status.mu.Unlock()
	d.status.inFlight, d.status.held = d.sending, len(d.items)
	d.status.idle = d.empty && len(d.items) == 0 && !d.once
}

// leaveStrays counts the records whose send has not returned as held until it
// does, and waits for that beside the next tenancy.
func (d *drainer) leaveStrays() {
	if d.sending == 0 {
		return
	}
	var late []*item
	for _, it := range d.items {
		if it.sending {
			d.stray(it.ref(), 1)
			late = append(late, it)
		}
	}
	d.tellLate(late)
	n := d.sending
	d.bridge.strays.Go(func() {
		for range n {
			r := <-d.results
			for _, it := range r.batch {
				d.stray(it.ref(), -1)
			}
			d.bridge.notified(d.partition) // whatever serves it by now
		}
	})
}

// tellLate says which sends this process had under way when its lease ended.
// Another owner may have sent the same meanwhile, and go on to younger ones.
func (d *drainer) tellLate(items []*item) {
	for _, it := range items {
		d.log(slog.LevelWarn, "a send was under way when the partition was lost",
			about(&it.rec.Envelope), slog.Int("attempt", max(1, it.rec.ReplayCount)),
			slog.String("token", d.token.String()))
	}
	d.observe(d.work, Event{Kind: EventStray, Count: len(items)})
}

// lost reports whether the lease has ended, which the loop is about to see. Asked
// right before anything is done that a former owner must not do, it keeps a
// process that was stopped for a while from doing it.
func (d *drainer) lost() bool { return d.work.Err() != nil || d.ended() }

// trouble says that something went wrong, at growing intervals while it goes on,
// and notes it for others to see.
func (d *drainer) trouble(message string, err error, attrs ...slog.Attr) {
	d.bridge.troubles.note(d.partition, message, err)
	if say, more := d.bridge.repeats.news(message + " " + string(d.partition)); say {
		d.log(slog.LevelWarn, message, append(append(attrs, more...), slog.String("error", err.Error()))...)
	}
}

// log writes about this partition.
func (d *drainer) log(level slog.Level, message string, attrs ...slog.Attr) {
	d.bridge.opts.Logger.LogAttrs(d.work, level, message, append([]slog.Attr{
		slog.String("route", d.route.Name), slog.String("binding", d.binding.Name),
		slog.String("partition", string(d.partition)),
	}, attrs...)...)
}
