// Package torture kills the real binary, fills its disk, cuts it off and restarts it
// under load, and holds what the outside saw against what gobridge promises.
//
// A producer sends the next message of a key only when the one before was
// acknowledged, so the order of a key is known from outside. The checker works
// on that history alone: it knows nothing of stores, leases or records.
//
// Several processes share a file or a DynamoDB table. To a table each goes through
// a proxy of its own that stalls, cuts and refuses its connections; the table is in
// the fake, or in the emulator that GOBRIDGE_DYNAMODB_ENDPOINT names. Who owns what
// is read from the processes' logs, who sends what from the token of each delivery.
//
// Environment: TORTURE_ROUNDS (1), TORTURE_SEED (random; printed), TORTURE_LOAD
// (2s of load a round), TORTURE_RACE (any value builds with -race), and that of
// [gobridge/internal/testbinary].
package torture

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"gobridge/internal/testbinary"
)

func TestMain(m *testing.M) {
	if os.Getenv("TORTURE_RACE") != "" {
		testbinary.Main(m, "-race")
	}
	testbinary.Main(m)
}

// rounds is how often a test repeats itself.
func rounds(t *testing.T) int {
	return fromEnv(t, "TORTURE_ROUNDS", 1, strconv.Atoi)
}

// seed is what all randomness of a run comes from.
func seed(t *testing.T) uint64 {
	return fromEnv(t, "TORTURE_SEED", uint64(rand.Uint32()), func(s string) (uint64, error) {
		return strconv.ParseUint(s, 10, 64)
	})
}

// load is how long the producers of a round work.
func load(t *testing.T) time.Duration {
	return fromEnv(t, "TORTURE_LOAD", 2*time.Second, time.ParseDuration)
}

func fromEnv[V any](t *testing.T, name string, otherwise V, parse func(string) (V, error)) V {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return value
}

// random returns a source of randomness for one use: the same for the same seed
// and use.
func random(seed, use uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, use)) }
