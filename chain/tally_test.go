package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge/internal/testbroker"
)

// tally counts what arrives of messages that are numbered from 0. Message i is the
// one of key i%keys that comes after message i-keys.
type tally struct {
	messages, keys int
	pad            string

	mu       sync.Mutex
	times    []int // how often each has arrived
	last     []int // by key, the number of the last one that was new
	arrived  int   // different ones
	repeats  int
	probes   int
	problems []string
}

func newTally(messages, keys, pad int) *tally {
	c := &tally{messages: messages, keys: keys, pad: strings.Repeat("x", pad), times: make([]int, messages), last: make([]int, keys)}
	for i := range c.last {
		c.last[i] = -1
	}
	return c
}

// content is what a message's payload says.
type content struct {
	Key string `json:"key"`
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// message returns message n; below 0 it is a probe, which counts for nothing.
func (c *tally) message(n int) testbroker.Message {
	key := "probe"
	if n >= 0 {
		key = fmt.Sprintf("key-%d", n%c.keys)
	}
	body, _ := json.Marshal(content{key, n, c.pad}) // strings and numbers
	return testbroker.Message{Key: key, Body: body}
}

// slice returns messages from..to-1.
func (c *tally) slice(from, to int) []testbroker.Message {
	out := make([]testbroker.Message, 0, to-from)
	for n := from; n < to; n++ {
		out = append(out, c.message(n))
	}
	return out
}

// arrive takes up a message that has come out.
func (c *tally) arrive(m testbroker.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var said content
	if err := json.Unmarshal(m.Body, &said); err != nil || said.N >= c.messages {
		c.problem("something that nobody has sent: %.100q", m.Body)
		return
	}
	if sent := c.message(said.N); !bytes.Equal(sent.Body, m.Body) || m.Key != sent.Key {
		c.problem("message %d has changed: key %q, %.100q", said.N, m.Key, m.Body)
		return
	}
	if said.N < 0 {
		c.probes++
		return
	}
	c.times[said.N]++
	if c.times[said.N] > 1 {
		c.repeats++
		return
	}
	c.arrived++
	if last := &c.last[said.N%c.keys]; said.N < *last {
		c.problem("message %d of %s arrived for the first time after message %d", said.N, said.Key, *last)
	} else {
		*last = said.N
	}
}

func (c *tally) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *tally) count() (arrived, repeats, probes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arrived, c.repeats, c.probes
}

// stillness is how long nothing may arrive before a test says that the chain stands.
const stillness = 60 * time.Second

// await waits until all that was sent has arrived, and holds it against the promise.
// Without any new message for so long it gives up, and why adds to what it says.
func (c *tally) await(t *testing.T, why func() string) {
	t.Helper()
	last, since := -1, time.Now()
	for arrived := 0; arrived < c.messages; arrived, _, _ = c.count() {
		if arrived != last {
			last, since = arrived, time.Now()
		}
		if time.Since(since) > stillness {
			t.Errorf("%d of %d messages are missing, and nothing has arrived for %s%s", c.messages-arrived, c.messages, stillness, why())
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.problems {
		if i == 5 {
			t.Errorf("and %d more", len(c.problems)-i)
			break
		}
		t.Error(p)
	}
}

func TestTallyFindsWhatIsWrong(t *testing.T) {
	of := func(change func(*tally)) *tally {
		c := newTally(4, 2, 0)
		change(c)
		return c
	}
	arrive := func(numbers ...int) func(*tally) {
		return func(c *tally) {
			for _, n := range numbers {
				c.arrive(c.message(n))
			}
		}
	}
	for _, c := range []struct {
		name              string
		tally             *tally
		arrived, problems int
	}{
		{"all in order", of(arrive(0, 1, 2, 3)), 4, 0},
		{"keys side by side", of(arrive(1, 3, 0, 2)), 4, 0},
		{"repeats, late ones too", of(arrive(0, 0, 2, 0, 1, 3)), 4, 0},
		{"one is missing", of(arrive(0, 1, 2)), 3, 0},
		{"one after its follower", of(arrive(2, 0, 1, 3)), 4, 1},
		{"a probe", of(arrive(-1)), 0, 0},
		{"one that nobody sent", of(arrive(4)), 0, 1},
		{"another key", of(func(c *tally) { c.arrive(testbroker.Message{Key: "key-1", Body: c.message(0).Body}) }), 0, 1},
		{"no message at all", of(func(c *tally) { c.arrive(testbroker.Message{Body: []byte("{")}) }), 0, 1},
	} {
		if arrived, _, _ := c.tally.count(); arrived != c.arrived || len(c.tally.problems) != c.problems {
			t.Errorf("%s: %d arrived, problems %q; want %d and %d", c.name, arrived, c.tally.problems, c.arrived, c.problems)
		}
	}
}
