// Package testbinary builds the binary for the tests of a room that run it as a process.
//
// Environment: GOBRIDGE_BINARY names one to use instead of building it.
package testbinary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

const env = "GOBRIDGE_BINARY"

// Main is a TestMain: it builds the binary with the flags for go build, runs the tests,
// and fails if they leave goroutines behind.
func Main(m *testing.M, flags ...string) {
	dir, err := os.MkdirTemp("", "gobridge-binary-")
	if err == nil && os.Getenv(env) == "" {
		err = build(filepath.Join(dir, "gobridge"), flags)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// Path returns the binary's path.
func Path() string { return os.Getenv(env) }

// build makes the binary as people get it, whatever the tests are compiled with.
func build(path string, flags []string) error {
	args := append([]string{"build", "-o", path}, flags...)
	command := exec.CommandContext(context.Background(), "go", append(args, "gobridge/cmd/gobridge")...)
	if len(flags) == 0 {
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return os.Setenv(env, path)
}
