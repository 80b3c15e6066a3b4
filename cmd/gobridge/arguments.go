package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// arguments says what the arguments of commands are.
var arguments = map[string]string{
	"TARGET":  "a route (orders) or a binding (orders/crm)",
	"BINDING": "a binding (orders/crm)",
	"FROM":    "the binding to move from",
	"TO":      "the binding to move to",
	"ID":      "a message's ID",
	"WHAT":    "a message's ID, an ordering key, a binding or a route",
	"FILE":    "a file, or - for standard input",
}

// wants takes these arguments and no others, none of them empty, as an unset variable
// of a shell is.
func wants(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		use, _, _ := strings.Cut(cmd.UseLine(), " [flags]")
		for i, name := range names {
			if i >= len(args) {
				return usage("%s is missing, %s: %s", name, arguments[name], use)
			}
			if args[i] == "" {
				return usage("%s is empty; it is %s: %s", name, arguments[name], use)
			}
		}
		if len(args) > len(names) {
			return usage("%q is one argument too many: %s", args[len(names)], use)
		}
		return nil
	}
}

// notEmpty has a command refuse flags that are given and empty: a selection by an unset
// variable of a shell would be of everything, and an outbox would be another one.
func notEmpty(cmd *cobra.Command, names ...string) {
	also(cmd, func() error { return givenEmpty(cmd, names...) })
}

func givenEmpty(cmd *cobra.Command, names ...string) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, name := range names {
			if err == nil && f.Name == name && f.Value.String() == "" {
				err = usage("--%s is empty; leave it out, or give it a value", name)
			}
		}
	})
	return err
}

// between refuses a number that is out of its bounds, or none at all.
func between[N int | float64](flag string, n, least, most N) error {
	if n >= least && n <= most {
		return nil
	}
	if float64(most) >= math.MaxInt {
		return usage("--%s is %v; it is %v or more", flag, n, least)
	}
	return usage("--%s is %v; it is from %v to %v", flag, n, least, most)
}

// fileWithoutFlag answers --config, which other commands have.
func fileWithoutFlag(cmd *cobra.Command, err error) error {
	for _, unknown := range []string{"unknown flag: --config", "unknown shorthand flag: 'c'"} {
		if strings.Contains(err.Error(), unknown) {
			return fmt.Errorf("%w; the file is given without one: %s FILE", err, cmd.CommandPath())
		}
	}
	return err
}

// also has a command check something more before it runs.
func also(cmd *cobra.Command, check func() error) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before != nil {
			if err := before(cmd, args); err != nil {
				return err
			}
		}
		return check()
	}
}
