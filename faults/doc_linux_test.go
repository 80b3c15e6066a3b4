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
	"flag"
	"testing"

	"gobridge/internal/testbinary"
)

// update writes docs/faults.md anew.
var update = flag.Bool("update", false, "write docs/faults.md anew")

func TestMain(m *testing.M) { testbinary.Main(m) }
