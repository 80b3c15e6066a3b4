package kafka

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// watch keeps why a client's latest connection was not to be had. The library
// tries again for as long as it may, and says no more in the end than that time is
// over. It is a hook of the library.
type watch struct {
	mu  sync.Mutex
	err error
}

// OnBrokerConnect implements [kgo.HookBrokerConnect]: connecting includes TLS and
// authentication.
func (w *watch) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// explain adds to an error what went wrong with the connection, if something did
// and the error is no answer of a broker.
func (w *watch) explain(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var answer *kerr.Error
	if err == nil || w.err == nil || errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%w; the connection: %w", err, w.err)
}
