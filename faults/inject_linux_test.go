package faults

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gobridge"
	"gobridge/admin"
	"gobridge/admin/console"
	"gobridge/internal/fakedynamo"
	"gobridge/internal/testdisk"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/sqlite"
)

const crm = gobridge.Partition("orders/crm/0")

// message is one for crm.
func message(id string) gobridge.Record {
	return gobridge.Record{Partition: crm, Binding: "crm", Envelope: messaging.Envelope{ID: id, OrderingKey: "cust-7781", Payload: []byte(`{"n":1}`)}}
}

// as does something to the outbox as a process would whose clock is ahead, or behind.
func (r *rig) as(ahead time.Duration, f func(ctx context.Context, s *sqlite.Store) error) {
	r.Helper()
	now := func() time.Time { return time.Now().Add(ahead) }
	store, err := sqlite.OpenFile(r.Context(), filepath.Join(r.dir, "outbox.db"), sqlite.Options{Now: now})
	r.must(err)
	r.must(f(r.Context(), store))
	r.must(store.Close())
}

// poison lets a message that fails wait for twenty minutes, while the destination takes
// others.
func poison(r *rig) {
	r.as(-20*time.Minute, func(ctx context.Context, s *sqlite.Store) error {
		return s.Persist(ctx, []gobridge.Record{message("m-1"), message("m-2")})
	})
	r.delivers("good")
	r.delivers("good-2") // it has failed by now, and what gets through tells that the destination is up
}

// jump stops the bridge and lets one drain its partition for a moment whose clock is a
// year fast.
func jump(r *rig) {
	r.must(r.newest.cmd.Process.Signal(syscall.SIGTERM))
	<-r.newest.ended
	r.as(365*24*time.Hour, func(ctx context.Context, s *sqlite.Store) error {
		lease, err := s.Leases().Acquire(ctx, gobridge.AcquireRequest{Partition: crm, Owner: "fast", Term: 2 * time.Second})
		if err != nil {
			return err
		}
		if err := s.Persist(ctx, []gobridge.Record{message("m-1"), message("m-2")}); err != nil {
			return err
		}
		claimed, err := s.Claim(ctx, gobridge.ClaimRequest{Partition: crm, Token: lease.Token, Limit: 2})
		if err != nil || len(claimed) != 2 {
			return fmt.Errorf("%d claimed: %w", len(claimed), err)
		}
		err = s.Release(ctx, lease.Token, []gobridge.Release{
			{Ref: claimed[0].Ref(), NotBefore: time.Now().Add(365 * 24 * time.Hour), Tried: gobridge.Failed, Reason: "failed", Error: "500 Internal Server Error"},
			{Ref: claimed[1].Ref()},
		})
		if err != nil {
			return err
		}
		return s.Leases().Release(ctx, lease)
	})
	r.start("gobridge run b.yaml")
}

// abandon runs another bridge with a route of its own on the same outbox, and ends it
// for good while messages of that wait.
func abandon(r *rig) {
	r.dest.answers(http.StatusUnauthorized)
	r.file("old.yaml", strings.ReplaceAll(r.text(freeAddress(r.TB)), "  orders:\n", "  old:\n"))
	url := r.url
	other := r.start("gobridge run old.yaml")
	r.post(http.StatusAccepted, "m-1", "cust-7781")
	r.post(http.StatusAccepted, "m-2", "cust-7781")
	r.must(other.cmd.Process.Signal(syscall.SIGTERM))
	<-other.ended
	r.url = url
}

// misconfigure makes the bridge load a file that is wrong. A command that would go by
// the file says what is wrong with it, too.
func misconfigure(r *rig) {
	r.file("b.yaml", strings.Replace(r.text(r.admin), "routes:", "rutes:", 1))
	r.must(r.newest.cmd.Process.Signal(syscall.SIGHUP))
	if status, out := r.run("gobridge status"); status != 2 || !strings.Contains(out, "rutes") {
		r.Errorf("by the file, status exits with %d and says\n%s", status, out)
	}
}

// onlooker opens a console on the outbox beside its bridges, as the process of a bridge
// does, and returns its address.
func (r *rig) onlooker() string {
	r.Helper()
	store, err := sqlite.OpenFile(r.Context(), filepath.Join(r.dir, "outbox.db"), sqlite.Options{})
	r.must(err)
	plan := &operate.Plan{Bindings: []operate.PlannedBinding{{Route: "orders", Binding: "crm"}}}
	server, err := admin.New(admin.Options{
		Address: "127.0.0.1:0", Operate: func() ([]string, error) { return []string{token}, nil },
		Desk: operate.New(store, operate.Options{Plan: plan}), Console: console.New,
	})
	r.must(err)
	r.must(server.Listen(r.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
		if err := store.Close(); err != nil {
			r.Error(err)
		}
	})
	return strings.TrimPrefix(server.URL(), "http://")
}

// table is a DynamoDB table, and the way to it, on which writes can be denied.
type table struct {
	server *fakedynamo.Server
	denied atomic.Bool
	writes atomic.Int64
}

// onTable puts the outbox on a table.
func (r *rig) onTable() {
	r.Helper()
	r.table = &table{server: fakedynamo.New(fakedynamo.Options{})}
	r.Cleanup(r.table.server.Close)
	target, err := url.Parse(r.table.server.URL())
	r.must(err)
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, operation, _ := strings.Cut(q.Header.Get("X-Amz-Target"), ".")
		if r.table.denied.Load() && isWrite(operation) {
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			body := fmt.Appendf(nil, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: arn:aws:iam::123456789012:user/bridge is not authorized to perform: dynamodb:%s"}`, operation)
			w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(body)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	r.Cleanup(func() { front.Close(); transport.CloseIdleConnections() })
	r.term = "1m" // what can't be written is not the lease's end at once
	r.store = fmt.Sprintf("{ dynamodb: { table: outbox, region: eu-central-1, endpoint: %q } }", front.URL)
	r.env = []string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true"}
	r.file("b.yaml", r.text(r.admin))
	if status, out := r.run("gobridge table ensure"); status != 0 {
		r.Fatalf("table ensure: %s", out)
	}
}

func isWrite(operation string) bool {
	switch operation {
	case "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem":
		return true
	}
	return false
}

// throttle makes three of four writes want for throughput, transactions aside, which
// don't say which limit they met.
func (t *table) throttle() {
	t.server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if isWrite(c.Operation) && c.Operation != "TransactWriteItems" && t.writes.Add(1)%4 != 0 {
			return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
		}
		return nil
	}})
}

func (t *table) calm() { t.server.SetHooks(fakedynamo.Hooks{}) }

// disk is a small one of its own.
type disk struct{ path, ballast string }

// onDisk puts the outbox on a disk of 16 MiB. It needs the right to mount.
func (r *rig) onDisk() {
	r.Helper()
	r.disk = &disk{path: filepath.Join(r.dir, "disk"), ballast: filepath.Join(r.dir, "disk", "ballast")}
	r.must(os.Mkdir(r.disk.path, 0o755)) //nolint:gosec // the bridge may run as another user
	testdisk.Mount(r, r.disk.path, 16<<20)
	r.store = "{ sqlite: { path: disk/outbox.db } }"
}

// fill leaves 256 KiB: much less than the outbox has to leave, and enough to deliver.
func (d *disk) fill(r *rig) {
	r.Helper()
	var free unix.Statfs_t
	r.must(unix.Statfs(d.path, &free))
	room := int(free.Bavail)*int(free.Bsize) - 256<<10
	r.must(os.WriteFile(d.ballast, make([]byte, room), 0o600))
}
