package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// demoConfig is the bridge of the demo: a file, one route, one destination.
const demoConfig = `
version: 1
lease_term: 2s
grace: 2s
store: { sqlite: { path: %q } }
http: { listen: "127.0.0.1:0" }
routes:
  demo:
    source: { http: { path: /demo } }
    bindings:
      shop:
        webhook: { url: %q, timeout: 5s }
        retry: { attempts: 1000, backoff: 50ms..500ms }
`

func newDemo(stdout, stderr io.Writer) *cobra.Command {
	opts := demoOptions{keys: 40, producers: 8, pace: 400}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a bridge through a bad quarter of a minute, and count",
		Long: `Run a bridge through a bad quarter of a minute, and count.

A bridge on a temporary file, as a process of its own; producers over many keys;
a destination that fails, slows and goes down; the bridge killed with messages in
flight, and started again. Then a table: what was accepted, what arrived, how
often, and in what order. It exits with 1 if a message was lost or out of order.`,
		Args: wants(),
		PreRunE: func(*cobra.Command, []string) error {
			if opts.length <= 0 {
				return usage("--for is %v; it is a time above zero", opts.length)
			}
			return cmp.Or(between("keys", opts.keys, 1, math.MaxInt), between("pace", opts.pace, 1, maxDemoPace))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &demo{demoOptions: opts, stdout: stdout, stderr: stderr, book: newDemoBook()}
			if err := d.run(cmd.Context()); err != nil {
				return &failure{err}
			}
			sum := d.book.sum(d.calm)
			if err := sum.write(stdout); err != nil {
				return &failure{err}
			}
			if sum.lost > 0 || sum.disorder > 0 {
				return exitStatus(statusFailed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&opts.length, "for", 15*time.Second, "how long messages are produced")
	f.IntVar(&opts.keys, "keys", opts.keys, "how many ordering keys")
	f.IntVar(&opts.pace, "pace", opts.pace, "how many messages a second")
	return cmd
}

// maxDemoPace is more than any machine does.
const maxDemoPace = 1_000_000

type demoOptions struct {
	length    time.Duration
	keys      int
	producers int
	pace      int
}

// demo is a run of the demo.
type demo struct {
	demoOptions
	stdout, stderr io.Writer

	book  *demoBook
	start time.Time
	calm  time.Time // until when nothing went wrong

	mu       sync.Mutex
	mood     demoMood
	url      string // of the bridge that runs
	inFlight int    // requests at the destination
}

// demoMood is how the destination is.
type demoMood struct {
	failing float64       // the share of requests that get 500
	slow    time.Duration // how long a request takes
	down    bool
}

func (d *demo) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "gobridge-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is the system's temporary folder
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	shop := &http.Server{Handler: http.HandlerFunc(d.serve), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = shop.Serve(l) // until it is closed
	}()
	defer func() {
		_ = shop.Close()
		<-served
	}()

	file := filepath.Join(dir, "demo.yaml")
	text := fmt.Sprintf(demoConfig, filepath.Join(dir, "outbox.db"), "http://"+l.Addr().String())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return d.play(ctx, file)
}

// play runs the bridge, the producers and the script.
func (d *demo) play(ctx context.Context, file string) error {
	bridge, err := startChild(ctx, file)
	if err != nil {
		return err
	}
	defer func() { bridge.kill() }()
	d.at(bridge.url)
	d.start = time.Now()
	d.say("a bridge runs as process %d; %d producers send %d messages a second over %d keys", bridge.pid(), d.producers, d.pace, d.keys)

	producing, stop := context.WithTimeout(ctx, d.length)
	defer stop()
	var producers sync.WaitGroup
	for i := range d.producers {
		producers.Go(func() { d.produce(ctx, producing, i) })
	}
	bridge, err = d.script(ctx, producing, file, bridge)
	if err != nil {
		stop()
		return err
	}
	producers.Wait()
	d.say("no more is sent; what was accepted is waited for")
	return d.settle(ctx)
}

// script makes things go wrong, each after its share of the time.
func (d *demo) script(ctx, producing context.Context, file string, bridge *child) (*child, error) {
	acts := []struct {
		at   float64
		text string
		mood demoMood
	}{
		{0.20, "the destination fails one request in five", demoMood{failing: 0.2}},
		{0.40, "the destination is slow: 150 ms a request", demoMood{slow: 150 * time.Millisecond}},
		{0.55, "the destination is down: it drops every connection", demoMood{down: true}},
		{0.70, "the destination is back", demoMood{slow: 5 * time.Millisecond}},
	}
	d.calm = d.start.Add(time.Duration(acts[0].at * float64(d.length)))
	for _, act := range acts {
		if err := d.until(ctx, act.at); err != nil {
			return bridge, err
		}
		d.be(act.mood)
		d.say("%s", act.text)
	}
	if err := d.until(ctx, 0.80); err != nil {
		return bridge, err
	}
	for d.flying() == 0 && producing.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	flying := d.flying()
	bridge.kill()
	d.say("kill -9 of process %d, with %d requests in flight", bridge.pid(), flying)
	again, err := startChild(ctx, file)
	if err != nil {
		return bridge, err
	}
	d.at(again.url)
	d.say("a bridge runs again, as process %d", again.pid())
	if err := d.until(ctx, 0.9); err != nil {
		return again, err
	}
	d.be(demoMood{})
	return again, nil
}

// until waits until a share of the time is over.
func (d *demo) until(ctx context.Context, share float64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(d.start.Add(time.Duration(share * float64(d.length))))):
		return nil
	}
}

// settle waits until everything that was accepted has arrived.
func (d *demo) settle(ctx context.Context) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if d.book.missing() == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil // the table tells what is missing
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.stdout, "%5.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) at(url string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.url = url
}

func (d *demo) be(mood demoMood) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mood = mood
}

func (d *demo) flying() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight
}

// serve is the destination.
func (d *demo) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	mood := d.mood
	d.inFlight++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.inFlight--
		d.mu.Unlock()
	}()
	m, err := readDemoMessage(r.Body)
	switch {
	case mood.down:
		panic(http.ErrAbortHandler) // drops the connection
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case rand.Float64() < mood.failing:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	time.Sleep(mood.slow)
	d.book.arrived(m)
	w.WriteHeader(http.StatusNoContent)
}

// produce sends messages of some of the keys until producing ends. A message
// that has been begun is repeated under its ID until it is accepted.
func (d *demo) produce(ctx, producing context.Context, number int) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	turn := time.NewTicker(time.Second * time.Duration(d.producers) / time.Duration(d.pace))
	defer turn.Stop()
	for n := 0; ; n++ {
		for key := number; key < d.keys; key += d.producers {
			select {
			case <-producing.Done():
				return
			case <-turn.C:
			}
			m := demoMessage{Key: key, N: n}
			for !d.post(ctx, client, m) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
			d.book.accepted(m)
		}
	}
}

// post reports whether the bridge has the message.
func (d *demo) post(ctx context.Context, client *http.Client, m demoMessage) bool {
	d.mu.Lock()
	url := d.url
	d.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/demo", m.body())
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", m.id())
	request.Header.Set("Gobridge-Ordering-Key", fmt.Sprint(m.Key))
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && (response.StatusCode == http.StatusAccepted || response.StatusCode == http.StatusOK)
}

// errNoBridge says that the child process has not come up.
var errNoBridge = errors.New("the bridge does not come up")
