package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gobridge"
	"gobridge/bridge"
	"gobridge/config"
	"gobridge/messaging"
	"gobridge/operate"
	"gobridge/store/memory"
)

// newTry tells what would become of a message.
func newTry(stdin io.Reader, p *place) *cobra.Command {
	var route, contentType, key, id, subject string
	var headers []string
	cmd := p.bind(&cobra.Command{
		Use:   "try [FILE]",
		Short: "Say what would become of a message on standard input; send nothing",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.admin != "" {
				return usage("try works on a configuration: give its FILE instead of --admin")
			}
			if len(args) == 1 {
				p.config = args[0]
			}
			c, err := p.load()
			if err != nil {
				return err
			}
			if c == nil {
				return fmt.Errorf("no configuration is named: give a FILE, or set $%s", configEnv)
			}
			if route == "" && len(c.Routes) == 1 {
				for only := range c.Routes {
					route = only
				}
			}
			body, err := io.ReadAll(io.LimitReader(stdin, maxTry+1))
			if err != nil || len(body) > maxTry {
				return usage("standard input cannot be read, or has more than %d bytes", maxTry)
			}
			e := messaging.Envelope{ID: id, OrderingKey: key, Subject: subject, ContentType: contentType, Payload: body}
			if s := c.Routes[route].Source.HTTP; s != nil && e.Subject == "" {
				e.Subject = strings.Trim(string(s.Path), "/")
			}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, ":")
				if !ok {
					return usage("--header %q has no colon; write name: value", h)
				}
				if e.Headers == nil {
					e.Headers = messaging.Headers{}
				}
				e.Headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
			}
			return p.try(cmd.Context(), c, route, e)
		},
	})
	f := cmd.Flags()
	for _, name := range []string{"admin", "token-file", "ca"} {
		f.Lookup(name).Hidden = true // it says that it has no use for them
	}
	f.StringVar(&route, "route", "", "the route; not needed where there is only one")
	f.StringVar(&contentType, "content-type", "application/json", "the message's content type")
	f.StringVar(&key, "key", "", "the ordering key that the source gives")
	f.StringVar(&id, "id", "", "the message's ID, to see whether it is known already")
	f.StringVar(&subject, "subject", "", "the message's subject; the route's path when absent")
	f.StringArrayVar(&headers, "header", nil, "a header, as name: value; may be repeated")
	return cmd
}

// maxTry bounds the message, in bytes.
const maxTry = 16 << 20

func (p *place) try(ctx context.Context, c *config.Config, route string, e messaging.Envelope) error {
	var known gobridge.Inspector
	store, err := p.openStore(ctx, c)
	if err == nil {
		defer func() { _ = store.Close() }() // nothing was written
		known = store
	}
	b, err := bridge.New(memory.New(memory.Options{}), bridgeOptions(c, unsent(c), nil, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	trial, err := operate.Try(ctx, b, planOf(c), known, route, e)
	if err != nil {
		return err
	}
	if p.json {
		err = p.writeJSON(trial)
	} else {
		err = p.writeTrial(&trial, known != nil)
	}
	if err != nil {
		return &failure{err}
	}
	if trial.Refused != "" {
		return exitStatus(statusFailed)
	}
	return nil
}

// unsent are senders that send nothing.
func unsent(c *config.Config) *senders {
	out := &senders{of: map[[2]string]gobridge.Sender{}}
	for route, r := range c.Routes {
		for binding := range r.Bindings {
			out.of[[2]string{route, binding}] = gobridge.HandlerFunc(func(context.Context, gobridge.Delivery) error { return gobridge.ErrNotSent })
		}
	}
	return out
}

func (p *place) writeTrial(t *operate.Trial, looked bool) error {
	var out bytes.Buffer
	switch {
	case t.Refused != "":
		wrap(&out, "refused  ", "         ", oneLine(t.Refused))
	case t.Known:
		wrap(&out, "duplicate  ", "           ", "every binding has a message "+t.ID+" already: it would be answered, and go nowhere")
	default:
		fmt.Fprintf(&out, "accepted as %s\n", operate.Visible(t.ID))
	}
	if t.Key != "" {
		fmt.Fprintf(&out, "key         %s\n", operate.Visible(t.Key))
	} else if t.Refused == "" {
		out.WriteString("key         none: it is in no order\n")
	}
	if !t.ExpiresAt.IsZero() {
		fmt.Fprintf(&out, "expires     %s\n", t.ExpiresAt.Local().Format("2006-01-02 15:04:05"))
	}
	for _, b := range t.Bindings {
		line := fmt.Sprintf("%s: %s, in %s", b.Binding, b.Destination, b.Partition)
		if !b.Takes {
			line = fmt.Sprintf("%s: left out by its filter, %s", b.Binding, b.Filter)
		} else if b.Held != "" {
			line += fmt.Sprintf("; held since %s, %s", b.Since.Local().Format("2006-01-02 15:04:05"), b.Held)
		}
		wrap(&out, "-> ", "   ", line)
	}
	if !looked {
		out.WriteString("(the outbox is not there yet: whether the ID is known was not looked at)\n")
	}
	_, err := p.stdout.Write(out.Bytes())
	return err
}

// starter is the configuration that init prints.
//
//go:embed starter.yaml
var starter string

func newInit(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Print a configuration to start with",
		Args:  wants(),
		RunE: func(*cobra.Command, []string) error {
			if _, err := io.WriteString(stdout, starter); err != nil {
				return &failure{err}
			}
			if f, ok := stdout.(*os.File); ok && isTerminal(f) {
				fmt.Fprintln(os.Stderr, "(gobridge init > b.yaml puts it into a file)")
			}
			return nil
		},
	}
}
