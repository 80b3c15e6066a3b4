// Package faults injects faults one by one into the real binary, and holds what an
// operator would see against what the documents promise: the overview shows the fault
// within ten seconds, explain names its cause, an alert rings and falls silent, and the
// command of the alert's runbook helps. The table in docs/faults.md is written by it:
//
//	go test ./faults -run Faults -update
//
// It also counts what the overview, the pages, scrapes and streams read of an outbox
// that holds a great deal, and what a hundred open consoles cost a bridge.
//
// Environment: GOBRIDGE_COST (any value) counts at a million pending messages.
package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// update writes docs/faults.md anew.
var update = flag.Bool("update", false, "write docs/faults.md anew")

// envBinary names the binary for the tests below TestMain, which builds it.
const envBinary = "FAULTS_BINARY"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gobridge-faults-")
	if err == nil {
		err = build(filepath.Join(dir, "gobridge"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build makes the binary and names it in the environment.
func build(path string) error {
	command := exec.CommandContext(context.Background(), "go", "build", "-o", path, "gobridge/cmd/gobridge")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return os.Setenv(envBinary, path)
}
