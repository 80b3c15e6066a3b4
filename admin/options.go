package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Options configure a [Server]. Address, Desk and the tokens of a role are
// required.
type Options struct {
	// Address is host and port; port 0 takes a free one.
	Address string
	// CertFile and KeyFile are PEM files, for HTTPS: both or none. They are read
	// anew when they change.
	CertFile, KeyFile string
	// Hosts are further names under which the server may be addressed, beside its
	// address and, on loopback, localhost.
	Hosts []string

	// Read and Operate return the tokens of each role, nil for none. They are asked
	// again after a few seconds, so that tokens can be changed while it runs; an
	// error keeps those from before.
	Read, Operate func() ([]string, error)
	// Payloads is the role that may see payloads: [RoleOperate] when zero. With
	// [RoleNobody] nobody may.
	Payloads Role

	Desk Desk
	// Ready says whether the process can do its work; nil is always.
	Ready func(ctx context.Context) error
	// UnhealthyAfter is how long the oldest message may wait before its delivery counts
	// as unhealthy; 15 min when zero. UnhealthyAfterOf, unless nil, says it per binding:
	// zero is UnhealthyAfter, and below zero it may wait for ever.
	UnhealthyAfter   time.Duration
	UnhealthyAfterOf func(route, binding string) time.Duration
	// Config returns the configuration as it was loaded, without secrets; nil is none.
	Config func() string
	// Reload loads the configuration anew and says what changed; nil can't.
	Reload func(ctx context.Context) (string, error)

	// Metrics is what stands under /metrics, for those who may read; nil is nothing.
	Metrics http.Handler
	// Console is the web console; nil is none.
	Console Console

	// Now is the clock of tokens and sessions; time.Now when nil.
	Now func() time.Time
	// Logger gets what operators should know; nil discards.
	Logger *slog.Logger
}

// Role is what somebody may do.
type Role uint8

// The roles: each may do what those before it may.
const (
	// RoleNone is that of a request without a token.
	RoleNone Role = iota
	// RoleRead sees.
	RoleRead
	// RoleOperate acts.
	RoleOperate
	// RoleNobody is above all.
	RoleNobody
)

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case RoleRead:
		return "read"
	case RoleOperate:
		return "operate"
	case RoleNobody:
		return "nobody"
	}
	return "none"
}

// minToken is the shortest token, in characters.
const minToken = 16

func (o *Options) check() error {
	var errs []error
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		errs = append(errs, fmt.Errorf("address %q: it is host:port, like 127.0.0.1:9090", o.Address))
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("a certificate and its key go together"))
	}
	if o.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
			errs = append(errs, fmt.Errorf("certificate: %w", err))
		}
	}
	if o.Desk == nil {
		errs = append(errs, errors.New("no desk"))
	}
	if o.Read == nil && o.Operate == nil {
		errs = append(errs, errors.New("no tokens: whoever reaches the address could do everything"))
	}
	return errors.Join(errs...)
}

func (o *Options) setDefaults() {
	if o.Payloads == RoleNone {
		o.Payloads = RoleOperate
	}
	if o.UnhealthyAfter == 0 {
		o.UnhealthyAfter = 15 * time.Minute
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
