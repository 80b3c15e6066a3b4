// Package testbroker gives tests a client of a broker's own library beside the one
// that is tested: it makes what is to be there, puts messages in and watches them
// arrive. The broker runs in this process, or is a real one at an address.
//
// The client goes to the broker itself; what is tested goes through a proxy, so that
// its connections can be broken alone.
package testbroker

import (
	"testing"
	"time"

	"gobridge/internal/faultproxy"
)

// Message is what a test puts in and gets out.
type Message struct {
	Key  string // the ordering key; empty for none
	Body []byte
}

// Broker is a broker with messages at places: a stream or a subject, a queue, a topic.
type Broker interface {
	// Address is host and port of the proxy.
	Address() string
	// Proxy breaks what goes by Address.
	Proxy() *faultproxy.Proxy
	// Make makes a place of that name, empty.
	Make(t testing.TB, name string)
	// Put publishes messages in their order, and returns when the broker has all.
	Put(t testing.TB, place string, messages ...Message)
	// Watch calls f with every message of a place, first to last, one after the
	// other, until the test ends. One watch for each place.
	Watch(t testing.TB, place string, f func(Message))
}

// headerKey is what gobridge reads the ordering key from.
const headerKey = "gobridge-ordering-key"

// patience bounds a call of the client.
const patience = 30 * time.Second

// proxied is the part that all brokers have.
type proxied struct{ proxy *faultproxy.Proxy }

func (p proxied) Address() string          { return p.proxy.Addr() }
func (p proxied) Proxy() *faultproxy.Proxy { return p.proxy }

// before starts a proxy to an address.
func before(t testing.TB, address string) proxied {
	t.Helper()
	proxy, err := faultproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxied{proxy}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
