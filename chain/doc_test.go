// Package chain runs bridges in a row, each from one broker to the next, breaks
// their connections and kills them, and counts what comes out at the end: every
// message, and of each key the first time in its order. And it keeps a destination
// down until everything before it is full.
//
// What goes in is known by its number, so the count knows nothing of brokers,
// stores or identities.
//
// Environment: CHAIN_MESSAGES (8000, for the chain of processes), CHAIN_SEED (random;
// printed) and CHAIN_BINARY (a binary to use instead of building one). The chain of
// processes wants GOBRIDGE_NATS_URL, GOBRIDGE_AMQP_URL and GOBRIDGE_MQTT_URL, as
// scripts/brokers-live.sh sets them.
package chain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// envBinary names the binary for the tests below TestMain, which builds it.
const envBinary = "CHAIN_BINARY"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "gobridge-chain-")
	if err == nil && os.Getenv(envBinary) == "" {
		err = build(filepath.Join(dir, "gobridge"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chain:", err)
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

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a number", name, text)
	}
	return n
}

// seeded is where all that is random in a test comes from.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := setting(t, "CHAIN_SEED", 1+rand.IntN(1<<30))
	t.Logf("CHAIN_SEED=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // it is above 0
}

// patience bounds the wait for something that is sure to happen.
const patience = 60 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for this: %s", patience, what)
		}
	}
}
