package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gobridge"
	"gobridge/admin"
	"gobridge/admin/console"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/internal/clienttls"
	"gobridge/operate"
)

// payloadRoles are the roles that may see payloads, by their names in the
// configuration.
var payloadRoles = map[string]admin.Role{"read": admin.RoleRead, "operate": admin.RoleOperate, "nobody": admin.RoleNobody}

// newAdmin makes the admin listener of the configuration in force, nil if it has
// none. It is not ready any more once ctx has ended.
func newAdmin(ctx context.Context, l *live, store gobridge.Store) (*admin.Server, error) {
	c := l.config.Load()
	a := c.Admin
	if a == nil {
		return nil, nil //nolint:nilnil // there may be none
	}
	l.desk = operate.New(store, operate.Options{Plan: planOf(c)})
	options := admin.Options{
		Address:  string(a.Listen),
		Hosts:    a.Hosts,
		Read:     again(a.Tokens.Read),
		Operate:  again(a.Tokens.Operate),
		Payloads: payloadRoles[a.Payloads],
		Desk:     l.desk,
		Ready:    func(asking context.Context) error { return ready(asking, ctx, store, l.bridge) },
		Config:   func() string { return l.config.Load().Show() },
		Reload:   l.reload,
		Console:  console.New,
		UnhealthyAfterOf: func(route, binding string) time.Duration {
			if of, ok := l.config.Load().Routes[route].Bindings[binding]; ok {
				return time.Duration(of.UnhealthyAfter)
			}
			return -1 // it is parked
		},
		Logger: l.log,
	}
	if m := l.measures; m != nil {
		options.Metrics = m.exporters.Scrape
	}
	if a.TLS != nil {
		options.CertFile, options.KeyFile = a.TLS.Cert, a.TLS.Key
	}
	server, err := admin.New(options)
	if err != nil {
		return nil, c.Wrong(err, "admin")
	}
	return server, nil
}

// again reads secrets anew each time, nil for none.
func again(secrets []config.Secret) func() ([]string, error) {
	if len(secrets) == 0 {
		return nil
	}
	return func() ([]string, error) {
		out := make([]string, len(secrets))
		for i, s := range secrets {
			var err error
			if out[i], err = s.Again(); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// ready says why this process can't work, nil if it can: the outbox answers, the
// engine runs (with partitions of its own, or standing by), and the process was not
// told to stop. Sources that try to connect make nobody unready.
func ready(ctx, process context.Context, store gobridge.Store, b *bridge.Bridge) error {
	if process.Err() != nil {
		return errors.New("the process is stopping")
	}
	if !b.Running() {
		return errors.New("the engine does not run")
	}
	_, err := store.Stats(ctx)
	return err
}

// adminTokenEnv names the variable that has the token for --admin.
const adminTokenEnv = "GOBRIDGE_ADMIN_TOKEN" //nolint:gosec // the name, not the token

// remote opens the desk of a bridge that runs elsewhere.
func (p *place) remote() (*admin.Client, error) {
	token := os.Getenv(adminTokenEnv)
	if p.tokenFile != "" {
		data, err := os.ReadFile(p.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	if token == "" {
		return nil, fmt.Errorf("--admin needs a token: set $%s, or give --token-file FILE", adminTokenEnv)
	}
	options := admin.ClientOptions{URL: p.admin, Token: token}
	if p.ca != "" {
		var err error
		if options.TLS, err = (clienttls.Options{CA: p.ca}).Load(); err != nil {
			return nil, err
		}
	}
	return admin.NewClient(options)
}
