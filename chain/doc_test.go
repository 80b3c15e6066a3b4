// Package chain runs bridges in a row, each from one broker to the next, breaks
// their connections and kills them, and counts what comes out at the end: every
// message, and of each key the first time in its order. And it keeps a destination
// down until everything before it is full.
//
// What goes in is known by its number, so the count knows nothing of brokers,
// stores or identities.
//
// Environment: CHAIN_MESSAGES (8000, for the chain of processes), CHAIN_SEED (random;
// printed), and that of [gobridge/internal/testbinary]. The chain of processes wants
// GOBRIDGE_NATS_URL, GOBRIDGE_AMQP_URL and GOBRIDGE_MQTT_URL, as scripts/brokers-live.sh
// sets them.
package chain

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"gobridge/internal/testbinary"
)

func TestMain(m *testing.M) { testbinary.Main(m) }

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
