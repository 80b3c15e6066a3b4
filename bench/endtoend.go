package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// configuration is the real binary's config file: listening address, database,
// and the webhook's URL.
const configuration = `version: 1
log: { level: warn }
http: { listen: %[1]q }
store: { sqlite: { path: %[2]q } }
routes:
  bench:
    source: { http: { path: /bench } }
    bindings:
      hook:
        webhook: { url: "http://%[3]s/hook" }
        concurrency: %[4]d
`

const (
	connections = 64
	payloadSize = 256
)

// bridgeRun is the binary with a load generator before it and a receiver behind it.
type bridgeRun struct {
	journal  *journal
	receiver *receiver
	command  *exec.Cmd
	log      bytes.Buffer
	address  string
	folder   string
}

func startBridge(ctx context.Context, binary string, capacity int) (*bridgeRun, error) {
	folder, err := os.MkdirTemp("", "gobridge-bench-")
	if err != nil {
		return nil, err
	}
	r := &bridgeRun{journal: newJournal(capacity), folder: folder}
	if r.receiver, err = newReceiver(ctx, r.journal); err != nil {
		return nil, err
	}
	if r.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "bench.yaml")
	text := fmt.Sprintf(configuration, r.address, filepath.Join(folder, "outbox.db"),
		r.receiver.listener.Addr(), connections)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	r.command = exec.CommandContext(ctx, binary, "run", config)
	r.command.Stdout, r.command.Stderr = &r.log, &r.log
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	return r, r.awaitReady(ctx)
}

func (r *bridgeRun) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the binary does not listen: %w; its log: %s", err, r.log.Bytes())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// drain waits until everything accepted has been delivered.
func (r *bridgeRun) drain(limit time.Duration) error {
	for deadline := time.Now().Add(limit); r.journal.deliveredCount.Load() < r.journal.acceptedCount.Load(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("of %d accepted, %d were delivered %s after the load; the log: %s",
				r.journal.acceptedCount.Load(), r.journal.deliveredCount.Load(), limit, r.log.Bytes())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// stop ends everything and returns what the process has used.
func (r *bridgeRun) stop() (cpu time.Duration, residentMB float64, err error) {
	defer func() { _ = os.RemoveAll(r.folder) }()
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	if err := r.command.Wait(); err != nil {
		return 0, 0, fmt.Errorf("the binary ended with %w; its log: %s", err, r.log.Bytes())
	}
	r.receiver.close()
	state := r.command.ProcessState
	return state.UserTime() + state.SystemTime(), maxResidentMB(state), nil
}

// endToEnd measures the real binary once: at full load, then at a tenth of that.
func endToEnd(ctx context.Context, binary string, length time.Duration, t *table) error {
	if err := ceiling(ctx, length/4, t); err != nil {
		return fmt.Errorf("end to end, no bridge: %w", err)
	}
	rate, err := fullLoad(ctx, binary, length, t)
	if err != nil {
		return fmt.Errorf("end to end, full load: %w", err)
	}
	if err := tenthLoad(ctx, binary, length, rate/10, t); err != nil {
		return fmt.Errorf("end to end, a tenth of the load: %w", err)
	}
	return nil
}

// ceiling is what the generator and the receiver reach without a bridge
// between them.
func ceiling(ctx context.Context, length time.Duration, t *table) error {
	j := newJournal(int(length.Seconds()+1) * 500_000)
	r, err := newReceiver(ctx, j)
	if err != nil {
		return err
	}
	defer r.close()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	begun := time.Now()
	if err := produce(ctx, j, r.listener.Addr().String(), connections, 0); err != nil {
		return err
	}
	t.add("generator straight to receiver, no bridge", "messages/s",
		float64(j.deliveredCount.Load())/time.Since(begun).Seconds())
	return nil
}

func fullLoad(ctx context.Context, binary string, length time.Duration, t *table) (rate float64, err error) {
	r, err := startBridge(ctx, binary, int(length.Seconds())*100_000)
	if err != nil {
		return 0, err
	}
	own := ownCPU()
	begun := time.Now()
	loadCtx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	if err := produce(loadCtx, r.journal, r.address, connections, 0); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	accepted, delivered := r.journal.acceptedCount.Load(), r.journal.deliveredCount.Load()
	own = ownCPU() - own
	if err := r.drain(time.Minute); err != nil {
		return 0, err
	}
	all := time.Since(begun)
	cpu, resident, err := r.stop()
	if err != nil {
		return 0, err
	}
	rate = float64(accepted) / took.Seconds()
	t.add("accepted", "messages/s", rate)
	t.add("delivered, during the load", "messages/s", float64(delivered)/took.Seconds())
	t.add("accepted and delivered, to the last one", "messages/s", float64(accepted)/all.Seconds())
	t.add("delivered for each accepted, during the load", "ratio", float64(delivered)/float64(accepted))
	t.add("repeats", "count", float64(r.journal.repeats.Load()))
	t.add("CPU of the binary", "s/1000 msgs", cpu.Seconds()*1000/float64(accepted))
	t.add("resident memory of the binary, peak", "MB", resident)
	t.add("CPU of generator and receiver", "cores", own.Seconds()/took.Seconds())
	return rate, nil
}

func tenthLoad(ctx context.Context, binary string, length time.Duration, rate float64, t *table) error {
	r, err := startBridge(ctx, binary, int(length.Seconds()*rate*2)+1000)
	if err != nil {
		return err
	}
	loadCtx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	if err := produce(loadCtx, r.journal, r.address, connections, rate); err != nil {
		return err
	}
	if err := r.drain(time.Minute); err != nil {
		return err
	}
	if _, _, err := r.stop(); err != nil {
		return err
	}
	var fromAccepted, fromSent []float64
	for n := range r.journal.next.Load() {
		delivered := r.journal.delivered[n].Load()
		if r.journal.accepted[n] == 0 || delivered == 0 {
			continue
		}
		// The delivery can be there before the producer has read its answer.
		fromAccepted = append(fromAccepted, float64(max(0, delivered-r.journal.accepted[n]))/1e6)
		fromSent = append(fromSent, float64(delivered-r.journal.sent[n])/1e6)
	}
	if len(fromSent) == 0 {
		return fmt.Errorf("nothing was delivered at %.0f messages/s", rate)
	}
	t.add("at a tenth, accepted to delivered, p50", "ms", quantile(fromAccepted, 0.50))
	t.add("at a tenth, accepted to delivered, p99", "ms", quantile(fromAccepted, 0.99))
	t.add("at a tenth, sent to delivered, p50", "ms", quantile(fromSent, 0.50))
	t.add("at a tenth, sent to delivered, p99", "ms", quantile(fromSent, 0.99))
	return nil
}

// quantile sorts values and returns the one below which the share q lies.
func quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
