package nats_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	server "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"gobridge/transport/nats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for what must happen.
const patience = 30 * time.Second

// eventually waits until ok reports true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s has not happened", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// broker is a NATS server in this process that can be stopped and started again
// where it was.
type broker struct {
	t       testing.TB
	options server.Options
	*server.Server
}

// startBroker starts a server with JetStream; set changes its options.
func startBroker(t testing.TB, set func(*server.Options)) *broker {
	t.Helper()
	b := &broker{t: t, options: server.Options{
		Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	if set != nil {
		set(&b.options)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (b *broker) start() {
	b.t.Helper()
	options := b.options
	s, err := server.NewServer(&options)
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		b.t.Fatal("the server does not become ready")
	}
	b.Server = s
}

func (b *broker) stop() {
	b.Shutdown()
	b.WaitForShutdown()
}

func (b *broker) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.options.Port)) }
func (b *broker) url() string     { return "nats://" + b.address() }

// dial returns a client of the test's own.
func dial(t testing.TB, url string) (*client.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := client.Connect(url, client.MaxReconnects(-1), client.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// makeStream makes a stream in memory, or with what set says.
func makeStream(t testing.TB, js jetstream.JetStream, name string, set func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.MemoryStorage}
	if set != nil {
		set(&config)
	}
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// connect makes a connection of the adapter to a URL.
func connect(t testing.TB, url string, set func(*nats.Options)) *nats.Connection {
	t.Helper()
	options := nats.Options{Servers: []string{url}}
	if set != nil {
		set(&options)
	}
	conn, err := nats.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}
