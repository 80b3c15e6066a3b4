// Command gobridge runs a message bridge from one configuration file.
//
//	gobridge run FILE        run the bridge
//	gobridge validate FILE   say what is wrong with the file
//	gobridge schema          print the file's JSON Schema
//	gobridge version         say which gobridge this is
//	gobridge init            print a configuration to start with
//	gobridge demo            show what happens when things go wrong
//	gobridge try [FILE]      say what would become of a message
//
// The other commands look at an outbox and change what is in it, whether or not
// a bridge runs on it: status, explain, pause, resume, halt, retry, dead,
// discard, move, audit. With --admin they ask a bridge that runs elsewhere.
//
// It exits with 0 when all went well, 1 when something failed, and 2 when the
// command line or the configuration is wrong, so that repeating it is no use.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gobridge/config"
)

// The exit statuses.
const (
	statusOK      = 0
	statusFailed  = 1
	statusRefused = 2
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	// The first signal asks for an orderly end. From then on signals do what they
	// do by default, so that the second one ends the process at once.
	first := make(chan os.Signal, 1)
	signal.Notify(first, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-first
		signal.Stop(first)
		cancel()
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr) //nolint:contextcheck // the commands get ctx from cobra
	stderr = screen{stderr}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var failed *failure
	var invalid *config.Error
	var exit exitStatus
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &failed):
		fmt.Fprintf(stderr, "gobridge: %v\n", err)
		return statusFailed
	case errors.As(err, &invalid):
		fmt.Fprintf(stderr, "%v\n", err)
		return statusRefused
	}
	fmt.Fprintf(stderr, "gobridge: %v\n", err)
	return statusRefused
}

// failure is an error of running, not of what was asked for.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "gobridge",
		Short:         "A message bridge with a durable outbox",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given; gobridge --help lists them")
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(stdout, stderr), newValidate(screen{stdout}), newSchema(stdout), newVersion(stdout),
		newInit(stdout), newDemo(stdout, stderr))
	newPlace := func() *place { return &place{stdout: screen{stdout}, stderr: screen{stderr}, data: stdout} }
	root.AddCommand(newTry(os.Stdin, newPlace()))
	for _, command := range []func(*place) *cobra.Command{
		newStatus, newExplain, newPause, newResume, newHalt, newRetry, newDiscard, newMove, newAudit, newDead, newTable,
	} {
		root.AddCommand(command(newPlace()))
	}
	return root
}

func newRun(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the bridge until it is told to stop (SIGINT or SIGTERM); SIGHUP reloads the file",
		Long: `Run the bridge until it is told to stop (SIGINT or SIGTERM); SIGHUP reloads the file.

The first signal to stop ends it in order: no more is taken, and what is on its
way is settled. The second ends it at once. SIGHUP has the file read again, all of
it or nothing. A terminal that is closed sends SIGHUP, too, and the bridge goes on
without it: stop it with Ctrl-C before.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			// All the time: a reload that comes early waits, one that comes late is left,
			// and neither ends the process, which is what SIGHUP does by default.
			reloads := make(chan os.Signal, 1)
			signal.Notify(reloads, syscall.SIGHUP)
			defer signal.Stop(reloads)
			c, err := config.Load(args[0])
			if err != nil {
				return err
			}
			// Before anything is made or changed for it.
			if err := checkParts(c); err != nil {
				return err
			}
			return run(cmd.Context(), args[0], c, reloads, stdout, newLogger(c.Log, stderr))
		},
	}
	cmd.SetFlagErrorFunc(fileWithoutFlag)
	return cmd
}

func newValidate(stdout io.Writer) *cobra.Command {
	var connect bool
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration file and say what it does",
		Args:  oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0])
			if err != nil {
				return err
			}
			if err := checkParts(c); err != nil {
				return err
			}
			if err := summarize(stdout, c); err != nil || !connect {
				return err
			}
			return connectAll(cmd.Context(), c, stdout)
		},
	}
	cmd.SetFlagErrorFunc(fileWithoutFlag)
	cmd.Flags().BoolVar(&connect, "connect", false, "connect to every broker and say what would be consumed and published, and what is missing")
	return cmd
}

func newSchema(stdout io.Writer) *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  wants(),
		RunE: func(*cobra.Command, []string) error {
			out := []byte(config.Markdown())
			if !markdown {
				var err error
				if out, err = config.Schema(); err != nil {
					return &failure{err}
				}
			}
			if _, err := stdout.Write(out); err != nil {
				return &failure{err}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the reference page instead")
	return cmd
}

func newVersion(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which gobridge this is",
		Args:  wants(),
		RunE: func(*cobra.Command, []string) error {
			if _, err := fmt.Fprintln(stdout, version()); err != nil {
				return &failure{err}
			}
			return nil
		},
	}
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d files given; give one configuration file", len(args))
	}
	return nil
}
