package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gobridge"
	"gobridge/admin"
	"gobridge/config"
	"gobridge/operate"
	"gobridge/store/sqlite"
)

// configEnv names the configuration for the commands of operators.
const configEnv = "GOBRIDGE_CONFIG"

// openTimeout is how long a store may take to open.
const openTimeout = 10 * time.Second

// desk is what the commands of operators work with: a store of their own, or a
// bridge that runs elsewhere.
type desk = admin.Desk

// place says where the outbox is, and how a command speaks.
type place struct {
	stdout, stderr screen
	data           io.Writer // standard output, for what is no text for people

	config string
	db     string
	admin  string // the URL of an admin listener
	json   bool

	tokenFile, ca string // for the admin listener

	path string // of the outbox that was opened
}

// bind gives a command the flags of the place.
func (p *place) bind(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&p.config, "config", "c", "", "the configuration, which names the outbox ($"+configEnv+" when absent)")
	cmd.Flags().StringVar(&p.db, "db", "", "the outbox's SQLite file, instead of a configuration")
	cmd.Flags().BoolVar(&p.json, "json", false, "write JSON, for scripts")
	cmd.Flags().StringVar(&p.admin, "admin", "", "the address of a running bridge's admin listener, instead; its token is in $"+adminTokenEnv)
	cmd.Flags().StringVar(&p.tokenFile, "token-file", "", "a file that has the token for --admin")
	cmd.Flags().StringVar(&p.ca, "ca", "", "a PEM file of the roots to trust for --admin, instead of the system's")
	cmd.MarkFlagsMutuallyExclusive("config", "db", "admin")
	notEmpty(cmd, "config", "db", "admin", "token-file", "ca")
	return cmd
}

// unreachable is an error of getting at the outbox.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return u.err.Error() }
func (u *unreachable) Unwrap() error { return u.err }

// file returns the configuration that is to be used, empty for none.
func (p *place) file() string {
	if p.config == "" && p.db == "" && p.admin == "" {
		return os.Getenv(configEnv)
	}
	return p.config
}

// load reads the configuration, nil if there is none. A secret that this
// shell has not got does not matter to it.
func (p *place) load() (*config.Config, error) {
	path := p.file()
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return config.Parse(config.Input{Name: path, Data: data, Dir: filepath.Dir(path), Env: func(name string) (string, bool) {
		value, ok := os.LookupEnv(name)
		if !ok && bytes.Contains(data, []byte("${"+name+"}")) { // without a default
			return unset, true
		}
		return value, ok
	}})
}

// unset stands for the value of a variable that this shell has not got: it
// would do as a secret, and as an address.
const unset = "http://unset.invalid"

// open opens the desk. It makes no database that is not there.
func (p *place) open(ctx context.Context) (desk, io.Closer, error) {
	if p.admin != "" {
		client, err := p.remote()
		return client, client, err
	}
	c, err := p.load()
	if err != nil {
		return nil, nil, &unreachable{fmt.Errorf("%w\n(--db FILE looks at an outbox without a configuration)", err)}
	}
	store, err := p.openStore(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	opts := operate.Options{}
	if c != nil {
		opts.Plan = planOf(c)
	}
	return operate.New(store, opts), store, nil
}

func (p *place) openStore(ctx context.Context, c *config.Config) (openedStore, error) {
	path, opts := p.db, sqlite.Options{Logger: slog.New(slog.DiscardHandler)}
	switch {
	case c != nil && c.Store.DynamoDB != nil:
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		store, err := openDynamoDB(ctx, c.Store.DynamoDB, nil, opts.Logger)
		if err != nil {
			return nil, &unreachable{err}
		}
		return store, nil
	case c != nil && c.Store.SQLite == nil:
		return nil, &unreachable{errors.New("the outbox is in the memory of the bridge's own process: nobody else can look at it")}
	case c != nil:
		path, opts = c.Store.SQLite.Path, sqliteOptions(c.Store.SQLite, opts.Logger)
	case path == "":
		return nil, fmt.Errorf("no outbox is named: give --config FILE or --db FILE, or set $%s", configEnv)
	}
	p.path = path
	if _, err := os.Stat(path); err != nil {
		return nil, &unreachable{fmt.Errorf("no outbox: %w (it is made by the first run of the bridge)", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	store, err := sqlite.OpenFile(ctx, path, opts)
	if err != nil {
		return nil, &unreachable{fmt.Errorf("open the outbox: %w", err)}
	}
	return store, nil
}

// with runs f with an open desk.
func (p *place) with(f func(ctx context.Context, d desk, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		d, closer, err := p.open(cmd.Context())
		if err != nil {
			return err
		}
		defer closer.Close()
		return failing(f(cmd.Context(), d, args))
	}
}

// failing marks an error as one of running, unless it is known to be one of
// what was asked for.
func failing(err error) error {
	var exit exitStatus
	var usage *usageError
	if err == nil || errors.As(err, &exit) || errors.As(err, &usage) || errors.Is(err, gobridge.ErrNotFound) ||
		errors.Is(err, gobridge.ErrInvalidCursor) || errors.Is(err, admin.ErrNotAllowed) {
		return err
	}
	if errors.Is(err, admin.ErrUnreachable) {
		return &unreachable{err}
	}
	return &failure{err}
}

// usageError is an error of what was asked for.
type usageError struct{ error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitStatus ends the process with a status and says nothing more.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// planOf is what the configuration says to operators.
func planOf(c *config.Config) *operate.Plan {
	plan := &operate.Plan{}
	for _, route := range slices.Sorted(maps.Keys(c.Routes)) {
		bindings := c.Routes[route].Bindings
		for _, name := range slices.Sorted(maps.Keys(bindings)) {
			b := bindings[name]
			one := operate.PlannedBinding{
				Route: route, Binding: name, Destination: destination(b),
				Partitions: c.Routes[route].Partitions, MaxOutboxDepth: b.MaxOutboxDepth, RejectsWhenFull: b.OnFull != "dead_letter",
			}
			if b.Filter != nil {
				one.Filter = b.Filter.Source
			}
			plan.Bindings = append(plan.Bindings, one)
		}
	}
	for _, p := range c.Parked {
		plan.Parked = append(plan.Parked, string(p))
	}
	return plan
}

// command writes a step's command for this place, to be copied into a shell, empty if
// there is none.
func (p *place) command(args []string) string {
	switch {
	case len(args) > 0 && args[0] == "kill" && p.admin != "":
		// The process is on another machine, as far as this one knows.
		if slices.Contains(args, "-HUP") {
			return p.reloadCall()
		}
		return ""
	case len(args) < 2 || args[0] != "gobridge" || args[1] == "validate":
		return operate.CommandLine(args)
	}
	var last []string
	if n := len(args) - 1; args[1] == "explain" && strings.HasPrefix(args[n], "-") {
		args, last = args[:n], []string{"--", args[n]} // a key that looks like a flag
	}
	file := p.file()
	switch {
	case args[1] == "run" || args[1] == "try":
		if file == "" {
			file = "FILE"
		}
		args = slices.Insert(slices.Clone(args), 2, file)
	case p.admin != "":
		args = append(slices.Clone(args), "--admin", p.admin)
		if p.tokenFile != "" {
			args = append(args, "--token-file", p.tokenFile)
		}
		if p.ca != "" {
			args = append(args, "--ca", p.ca)
		}
	case p.db != "":
		args = append(slices.Clone(args), "--db", p.db)
	case p.config != "":
		args = append(slices.Clone(args), "--config", p.config)
	}
	return operate.CommandLine(append(args, last...))
}

// reloadCall is the call that has a bridge load its configuration, to be copied into
// a shell.
func (p *place) reloadCall() string {
	token := "$" + adminTokenEnv
	if p.tokenFile != "" {
		token = "$(cat " + operate.CommandLine([]string{p.tokenFile}) + ")"
	}
	call := `curl -sS --fail-with-body -H "Authorization: Bearer ` + token + `" -H "Content-Type: application/json"`
	if p.ca != "" {
		call += " --cacert " + operate.CommandLine([]string{p.ca})
	}
	body, err := json.Marshal(map[string]string{"by": whoami(), "reason": "mended"})
	if err != nil {
		return "" // two strings are always JSON
	}
	return call + " -d " + operate.CommandLine([]string{string(body), strings.TrimSuffix(p.admin, "/") + "/api/v1/reload"})
}

// whoami names the person at the terminal.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	} else if env := os.Getenv("USER"); env != "" {
		name = env
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
