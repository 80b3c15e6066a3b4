//go:build unix

package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gobridge/internal/faultproxy"
)

// fault is something that befalls one process of a crowd on a table.
type fault struct {
	name string
	// loses says that the process loses its partitions by it, if it had any.
	loses bool
	// unheard says that the table hears its renewals, and it no answers: for a
	// while it goes on to renew what it can use no longer.
	unheard bool
	// prepare comes before do, and nothing is lost by it.
	prepare func(c *crowd, victim int)
	do      func(c *crowd, victim int, rng *rand.Rand)
	// undo ends what do began, once the others have taken over.
	undo func(c *crowd, victim int, rng *rand.Rand)
}

// faults are what a round goes through, each of them once.
var faults = []fault{
	{name: "killed", loses: true,
		do:   func(c *crowd, victim int, _ *rand.Rand) { c.processes[victim].kill() },
		undo: func(c *crowd, victim int, _ *rand.Rand) { c.processes[victim] = c.start(c.configs[victim]) }},
	{name: "killed and replaced at once", loses: true,
		do: func(c *crowd, victim int, _ *rand.Rand) {
			c.processes[victim].kill()
			c.processes[victim] = c.start(c.configs[victim])
		}},
	{name: "frozen", loses: true,
		do:   func(c *crowd, victim int, _ *rand.Rand) { c.processes[victim].signal(syscall.SIGSTOP) },
		undo: func(c *crowd, victim int, _ *rand.Rand) { c.processes[victim].signal(syscall.SIGCONT) }},
	{name: "stopped",
		do: func(c *crowd, victim int, _ *rand.Rand) { c.restart(victim) }},
	{name: "cut off from the table", loses: true,
		do:   func(c *crowd, victim int, _ *rand.Rand) { c.table.proxies[victim].Stall(true) },
		undo: func(c *crowd, victim int, _ *rand.Rand) { c.table.proxies[victim].Stall(false) }},
	{name: "cut off from the table's answers", loses: true, unheard: true,
		do: func(c *crowd, victim int, _ *rand.Rand) {
			c.table.proxies[victim].StallFrom(faultproxy.FromServer, true)
		},
		undo: func(c *crowd, victim int, _ *rand.Rand) {
			c.table.proxies[victim].StallFrom(faultproxy.FromServer, false)
		}},
	{name: "frozen with sends on the wire", loses: true,
		do: func(c *crowd, victim int, rng *rand.Rand) {
			c.hooks[victim].Stall(true)
			time.Sleep(time.Duration(rng.Int64N(int64(sendTimeout))))
			c.processes[victim].signal(syscall.SIGSTOP)
		},
		undo: func(c *crowd, victim int, _ *rand.Rand) {
			c.processes[victim].signal(syscall.SIGCONT)
			c.hooks[victim].Stall(false)
		}},
	{name: "cut off from the table, with slow sends", loses: true,
		prepare: func(c *crowd, victim int) {
			c.hooks[victim].Delay(sendTimeout * 9 / 20) // both ways
			time.Sleep(4 * sendTimeout)                 // it claims more than it can send in a term
		},
		do: func(c *crowd, victim int, _ *rand.Rand) { c.table.proxies[victim].Stall(true) },
		undo: func(c *crowd, victim int, _ *rand.Rand) {
			c.table.proxies[victim].Stall(false)
			c.hooks[victim].Delay(0)
		}},
	{name: "cut off from the table for a part of a term",
		do: func(c *crowd, victim int, rng *rand.Rand) {
			p := c.table.proxies[victim]
			p.Stall(true)
			time.Sleep(time.Duration(rng.Int64N(int64(c.term / 2))))
			p.Stall(false)
		}},
	{name: "without a connection",
		do: func(c *crowd, victim int, rng *rand.Rand) {
			for range 1 + rng.IntN(8) {
				c.table.proxies[victim].Cut()
				time.Sleep(time.Duration(rng.Int64N(int64(c.term / 8))))
			}
		}},
	{name: "on connections that break in the middle",
		do: func(c *crowd, victim int, rng *rand.Rand) {
			p := c.table.proxies[victim]
			for _, d := range []faultproxy.Direction{faultproxy.FromClient, faultproxy.FromServer} {
				p.CutAfter(d, rng.Int64N(20_000))
				p.Cut()
				time.Sleep(c.term / 2)
				p.CutAfter(d, -1)
			}
		}},
	{name: "on half a connection",
		do: func(c *crowd, victim int, rng *rand.Rand) {
			for range 1 + rng.IntN(6) {
				c.table.proxies[victim].HalfClose(faultproxy.Direction(rng.IntN(2)))
				time.Sleep(time.Duration(rng.Int64N(int64(c.term / 8))))
			}
		}},
	{name: "on slow connections",
		do: func(c *crowd, victim int, rng *rand.Rand) {
			c.table.proxies[victim].Delay(time.Duration(1+rng.IntN(40)) * time.Millisecond)
			time.Sleep(c.term)
			c.table.proxies[victim].Delay(0)
		}},
	{name: "refused by the table", loses: true,
		do: func(c *crowd, victim int, _ *rand.Rand) {
			c.table.proxies[victim].Refuse(true)
			c.table.proxies[victim].Cut()
		},
		undo: func(c *crowd, victim int, _ *rand.Rand) { c.table.proxies[victim].Refuse(false) }},
}

// TestCutOff has three to five processes share a table, each through a proxy, and
// puts one after the other through every fault: nothing is lost, every key stays
// in order, what a process loses is taken over within a term and a fifth, later if
// only answers are cut off, and what comes of a former owner was on its way.
func TestCutOff(t *testing.T) {
	first := seed(t)
	for i := range (rounds(t) + 4) / 5 {
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprint(first+uint64(i)), func(t *testing.T) { cutOffRound(t, first+uint64(i)) })
	}
}

// takeoverSlack is what calls of a busy machine may add to a takeover: reading
// all leases, the fences, and acquiring.
const takeoverSlack = 3 * time.Second

func cutOffRound(t *testing.T, seed uint64) {
	rng := random(seed, 6)
	size := 3 + rng.IntN(3)
	c := newCrowd(t, seed, size, newTable(t, size))
	if rounds(t) >= 20 && rng.IntN(4) == 0 { // as it is unless configured; a round takes two minutes
		c.term = 5 * time.Second
	}
	c.begin()
	stop := c.work.run(t, seed)
	plan := slices.Clone(faults)
	rng.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	var report []string
	for _, f := range plan {
		c.awaitShared()
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		report = append(report, c.befall(f, rng.IntN(size), rng))
	}
	c.awaitShared()
	stop()
	behind := c.end()
	t.Logf("%s, %d processes, late sends %d, the latest %s behind the next owner; takeovers:\n\t%s",
		c.summary(), size, len(c.lates()), behind.Round(time.Millisecond), strings.Join(report, "\n\t"))
}

// befall lets a fault befall a process, waits until the others have taken over
// what it loses, and says how long that took.
func (c *crowd) befall(f fault, victim int, rng *rand.Rand) string {
	c.t.Helper()
	if rng.IntN(3) > 0 { // else its producers have a bad time
		c.front.to(c.addresses[(victim+1)%len(c.addresses)])
	} else {
		c.front.to(c.addresses[victim])
	}
	pid := c.processes[victim].command.Process.Pid
	c.mustRun(c.processes[victim])
	if f.prepare != nil {
		f.prepare(c, victim)
	}
	lost := c.held(pid)
	at := time.Since(c.history.start)
	c.history.mark("process %d %s", pid, f.name)
	f.do(c, victim, rng)
	took := time.Duration(0)
	if f.loses {
		took = c.awaitTakeover(lost, at)
		bound := c.term + c.term/5 + takeoverSlack
		if f.unheard {
			bound += c.term // the last renewal may have arrived at the end of its own term
		}
		if took > bound {
			c.t.Errorf("seed %d: process %d was %s at %.3fs, and the takeover took %s, want %s at most",
				c.seed, pid, f.name, at.Seconds(), took, bound)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(c.term))))
	}
	if f.undo != nil {
		c.history.mark("process %d goes on", pid)
		f.undo(c, victim, rng)
	}
	return fmt.Sprintf("%s: %d partitions, %s", f.name, len(lost), took.Round(time.Millisecond))
}
