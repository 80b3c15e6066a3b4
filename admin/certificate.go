package admin

import (
	"crypto/tls"
	"log/slog"
	"sync"
)

// certificates read the certificate for each connection, so that a renewed one is
// taken up. While the files can't be read, or do not fit each other because they
// are just being written, the one from before serves.
type certificates struct {
	cert, key string
	log       *slog.Logger

	mu   sync.Mutex
	last *tls.Certificate
}

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.last != nil {
		c.log.Error("the certificate of the admin listener can't be read anew; the one from before serves", "error", err)
		return c.last, nil
	}
	if err != nil {
		return nil, err
	}
	c.last = &pair
	return c.last, nil
}
