package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gobridge"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
	"gobridge/store/memory"
	"gobridge/store/sqlite"
	"gobridge/transport/httpsource"
	"gobridge/transport/webhook"
)

// openedStore is a store with an end.
type openedStore interface {
	gobridge.Store
	io.Closer
}

// memoryStore and tableStore are stores that have nothing to close.
type (
	memoryStore struct{ *memory.Store }
	tableStore  struct{ *dynamodb.Store }
)

func (memoryStore) Close() error { return nil }
func (tableStore) Close() error  { return nil }

func openStore(ctx context.Context, c config.Store, m *measures, log *slog.Logger) (openedStore, error) {
	if c.Memory != nil {
		return memoryStore{memory.New(memory.Options{Retention: time.Duration(c.Memory.Retention)})}, nil
	}
	if c.DynamoDB != nil {
		return openDynamoDB(ctx, c.DynamoDB, m.Table(), log)
	}
	if err := os.MkdirAll(filepath.Dir(c.SQLite.Path), 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the store: %w", err)
	}
	store, err := sqlite.OpenFile(ctx, c.SQLite.Path, sqliteOptions(c.SQLite, log))
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return store, nil
}

func sqliteOptions(c *config.SQLite, log *slog.Logger) sqlite.Options {
	return sqlite.Options{
		Retention:     time.Duration(c.Retention),
		DeadRetention: time.Duration(c.DeadRetention),
		MaxDead:       int64(c.MaxDeadLetters),
		Logger:        log,
	}
}

// checkParts makes those senders, sources and listeners that touch nothing outside,
// for what only they know to be wrong.
func checkParts(c *config.Config) error {
	brokers, err := openBrokers(c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { _ = brokers.Close() }() // nothing was connected that matters
	never := func(string) httpsource.Publish {
		return func(context.Context, ...messaging.Envelope) ([]gobridge.Receipt, error) {
			return nil, gobridge.ErrRejected
		}
	}
	var errs []error
	if _, err := brokers.receivers(c, nil); err != nil {
		errs = append(errs, err)
	}
	if _, err := newServer(c, never, slog.New(slog.DiscardHandler)); err != nil {
		errs = append(errs, err)
	}
	idle := &live{log: slog.New(slog.DiscardHandler)}
	idle.config.Store(c)
	if _, err := newAdmin(context.Background(), idle, memory.New(memory.Options{})); err != nil {
		errs = append(errs, err)
	}
	if s := c.Store.SQLite; s != nil {
		if info, err := os.Stat(s.Path); err == nil && info.IsDir() {
			errs = append(errs, c.Wrong(fmt.Errorf("%s is a directory; name a file", s.Path), "store", "sqlite"))
		}
	}
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		for _, binding := range slices.Sorted(maps.Keys(c.Routes[route].Bindings)) {
			if f := c.Routes[route].Bindings[binding].File; f != nil {
				if info, err := os.Stat(f.Path); err == nil && info.IsDir() {
					errs = append(errs, c.Wrong(fmt.Errorf("%s is a directory; name a file", f.Path), "routes", route, "bindings", binding, "file"))
				}
			}
			if _, err := brokers.sender(c, route, binding); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// newWebhook makes the sender of a binding that is spread over partitions.
func newWebhook(b config.Binding, partitions int) (gobridge.Sender, error) {
	headers := make(map[string]string, len(b.Webhook.Headers))
	for name, value := range b.Webhook.Headers {
		headers[name] = value.Reveal()
	}
	return webhook.New(webhook.Options{
		URL:         b.Webhook.URL.Reveal(),
		Shown:       b.Webhook.URL.Shown,
		Secrets:     reveal(b.Webhook.Secrets),
		Headers:     headers,
		Timeout:     time.Duration(b.Webhook.Timeout),
		Format:      b.Webhook.Format,
		Connections: b.Concurrency * partitions,
	})
}

func reveal(secrets []config.Secret) []string {
	var out []string
	for _, s := range secrets {
		out = append(out, s.Reveal())
	}
	return out
}

// The policies by their names in the configuration.
var (
	failurePolicies = map[string]bridge.FailurePolicy{
		"dead_letter": bridge.FailDeadLetter, "discard": bridge.FailDiscard, "halt_key": bridge.FailHaltKey,
	}
	fullPolicies   = map[string]bridge.FullPolicy{"reject": bridge.FullReject, "dead_letter": bridge.FullDeadLetter}
	rejectPolicies = map[string]bridge.RejectPolicy{"dead_letter": bridge.RejectDeadLetter, "discard": bridge.RejectDiscard}
	expirePolicies = map[string]bridge.ExpirePolicy{"drop": bridge.ExpireDrop, "dead_letter": bridge.ExpireDeadLetter}
)

// bridgeOptions turns the configuration into the engine's.
func bridgeOptions(c *config.Config, out *senders, m *measures, log *slog.Logger) bridge.Options {
	options := bridge.Options{
		LeaseTerm: time.Duration(c.LeaseTerm),
		Grace:     time.Duration(c.Grace),
		Removed:   bridge.RemovedRefuse,
		Observer:  m.Observer(),
		Logger:    log,
	}
	for _, p := range c.Parked {
		options.Parked = append(options.Parked, string(p))
	}
	for _, p := range c.Repartitioned {
		options.Repartitioned = append(options.Repartitioned, string(p))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		r := c.Routes[name]
		route := bridge.Route{
			Name:        name,
			Partitions:  r.Partitions,
			ExpireAfter: time.Duration(r.ExpireAfter),
			OnExpire:    expirePolicies[r.OnExpire],
			OnReject:    rejectPolicies[r.OnReject],
		}
		if r.OrderingKey != nil {
			route.OrderingKey = r.OrderingKey.Eval
		}
		for _, binding := range slices.Sorted(maps.Keys(r.Bindings)) {
			sender := m.sender(name, binding, out.of[[2]string{name, binding}])
			route.Bindings = append(route.Bindings, newBinding(binding, r.Bindings[binding], sender))
		}
		options.Routes = append(options.Routes, route)
	}
	return options
}

func newBinding(name string, b config.Binding, sender gobridge.Sender) bridge.Binding {
	out := bridge.Binding{
		Name:           name,
		Sender:         sender,
		Retry:          bridge.Retry{Attempts: b.Retry.Attempts, MinBackoff: b.Retry.Backoff.Min, MaxBackoff: b.Retry.Backoff.Max},
		OnFailure:      failurePolicies[b.OnFailure],
		MaxOutboxDepth: b.MaxOutboxDepth,
		OnFull:         fullPolicies[b.OnFull],
		Rate:           float64(b.Rate),
		Concurrency:    b.Concurrency,
	}
	if b.Filter != nil {
		out.Filter = b.Filter.Eval
	}
	// A send with an end of its own has it; the engine's is for a sender that forgets it.
	switch {
	case b.Webhook != nil:
		out.Timeout = time.Duration(b.Webhook.Timeout) + sendMargin
	case b.NATS != nil:
		out.Timeout = time.Duration(b.NATS.Timeout) + sendMargin
	case b.MQTT != nil:
		out.Timeout = time.Duration(b.MQTT.Timeout) + sendMargin
	}
	return out
}

// sendMargin is what the engine allows a sender beyond its own timeout.
const sendMargin = 5 * time.Second

// newServer makes the HTTP server with the path of every route.
func newServer(c *config.Config, publish func(route string) httpsource.Publish, log *slog.Logger) (*httpsource.Server, error) {
	options := httpsource.Options{
		Address: string(c.HTTP.Listen),
		Grace:   time.Duration(c.Grace),
		Logger:  log,
	}
	if c.HTTP.TLS != nil {
		options.CertFile, options.KeyFile = c.HTTP.TLS.Cert, c.HTTP.TLS.Key
	}
	server, err := httpsource.New(options)
	if err != nil {
		return nil, c.Wrong(err, "http", "tls")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		s := c.Routes[name].Source.HTTP
		if s == nil {
			continue
		}
		route := httpsource.RouteOptions{MaxBody: int64(s.MaxBody), MaxBatch: s.MaxBatch, Publish: publish(name)}
		for _, h := range s.Headers {
			route.Headers = append(route.Headers, string(h))
		}
		if s.Auth != nil {
			route.Tokens = reveal(s.Auth.Bearer)
			if s.Auth.Webhook != nil {
				route.Secrets = reveal(s.Auth.Webhook.Secrets)
			}
		}
		if err := server.Handle(string(s.Path), route, route.Publish.Accept); err != nil {
			return nil, c.Wrong(err, "routes", name, "source", "http")
		}
	}
	return server, nil
}

func scheme(tls *config.TLS) string {
	if tls != nil {
		return "https"
	}
	return "http"
}
