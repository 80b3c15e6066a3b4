package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// front is where the producers send: one of the processes' addresses.
type front struct{ address atomic.Pointer[string] }

func newFront(address string) *front {
	f := &front{}
	f.to(address)
	return f
}

func (f *front) to(address string) { f.address.Store(&address) }

// producers send until told to stop.
type producers struct {
	history *history
	front   *front
	count   int           // producers
	keys    int           // keys of each
	pause   time.Duration // the longest wait between two messages of a producer
	maxPad  int

	stored  atomic.Int64 // first answers 202; one that was lost is followed by a 200
	refused atomic.Int64 // answers 503
	failed  atomic.Int64 // no answer
}

// giveUp bounds how long one message may take to be acknowledged, outages of
// the disk and restarts included.
const giveUp = 60 * time.Second

// run starts the producers; stop lets each finish its message and waits for them.
func (p *producers) run(t *testing.T, seed uint64) (stop func()) {
	var group sync.WaitGroup
	quit := make(chan struct{})
	transport := &http.Transport{MaxIdleConnsPerHost: p.count}
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	for i := range p.count {
		group.Go(func() {
			if err := p.produce(t.Context(), client, i, random(seed, uint64(i)+100), quit); err != nil {
				t.Error(err)
			}
		})
	}
	var once sync.Once
	stop = func() {
		once.Do(func() { close(quit) })
		group.Wait()
		transport.CloseIdleConnections()
	}
	t.Cleanup(stop)
	return stop
}

func (p *producers) produce(ctx context.Context, client *http.Client, number int, rng *rand.Rand, quit <-chan struct{}) error {
	next := make([]int, p.keys+1)
	for {
		select {
		case <-quit:
			return nil
		case <-time.After(time.Duration(rng.Int64N(int64(p.pause) + 1))):
		}
		which := rng.IntN(p.keys + 1) // the last one stands for no key
		next[which]++
		m := message{Seq: next[which], Pad: strings.Repeat("=", rng.IntN(p.maxPad+1))}
		m.ID = fmt.Sprintf("p%d-k%d-%d", number, which, m.Seq)
		if which < p.keys {
			m.Key = fmt.Sprintf("p%d-k%d", number, which)
		}
		if err := p.deliver(ctx, client, m, rng); err != nil {
			return err
		}
	}
}

// deliver sends one message until it is acknowledged or the test is over.
func (p *producers) deliver(ctx context.Context, client *http.Client, m message, rng *rand.Rand) error {
	body := m.body()
	e := event{kind: sent, id: m.ID, key: m.Key, seq: m.Seq, digest: digest(body)}
	p.history.add(e)
	deadline := time.Now().Add(giveUp)
	for {
		status, answer, err := p.post(ctx, client, m, body, rng)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // The test is over; what this request came to is of no interest.
		case err != nil:
			p.failed.Add(1)
		case status == http.StatusAccepted || status == http.StatusOK:
			if e.kind != acked {
				e.kind, e.at, e.note = acked, 0, fmt.Sprintf("(answer %d)", status)
				p.history.add(e)
				if status == http.StatusAccepted {
					p.stored.Add(1)
				}
			}
			if rng.IntN(50) > 0 {
				return nil
			}
			continue // a producer that forgot its answer asks again
		case status == http.StatusServiceUnavailable:
			p.refused.Add(1)
		default:
			return fmt.Errorf("%s was answered %d: %s", m.ID, status, answer)
		}
		if time.Now().After(deadline) {
			last := fmt.Errorf("%s was not acknowledged within %s; the last answer: %d %s", m.ID, giveUp, status, answer)
			return errors.Join(last, err)
		}
		time.Sleep(time.Duration(5+rng.IntN(20)) * time.Millisecond)
	}
}

// impatience is the share of requests whose producer does not wait for the answer.
const impatience = 20

func (p *producers) post(ctx context.Context, client *http.Client, m message, body []byte, rng *rand.Rand) (status int, answer string, err error) {
	if rng.IntN(impatience) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(5_000))*time.Microsecond)
		defer cancel()
	}
	url := "http://" + *p.front.address.Load() + "/orders"
	if m.Key == "" {
		url = "http://" + *p.front.address.Load() + "/loose"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", m.ID)
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 2048))
	return response.StatusCode, string(text), err
}

// summary says how the producers fared.
func (p *producers) summary() string {
	accepted := p.history.count(func(e event) bool { return e.kind == acked })
	return fmt.Sprintf("accepted %d (answers 503: %d, none: %d)", accepted, p.refused.Load(), p.failed.Load())
}
