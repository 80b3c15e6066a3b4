package dynamodb_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// allowed returns the actions of a policy file, in order.
func allowed(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	must(t, err)
	var policy struct {
		Statement []struct{ Action []string }
	}
	must(t, json.Unmarshal(raw, &policy))
	actions := map[string]bool{}
	for _, s := range policy.Statement {
		for _, a := range s.Action {
			actions[strings.TrimPrefix(a, "dynamodb:")] = true
		}
	}
	return slices.Sorted(maps.Keys(actions))
}

// called returns the calls that a server has had. Transactions need no action
// of their own, but those of their parts.
func called(servers ...*fakedynamo.Server) []string {
	calls := map[string]bool{}
	for _, server := range servers {
		for call := range server.Stats() {
			calls[call] = true
		}
	}
	delete(calls, "TransactWriteItems")
	return slices.Sorted(maps.Keys(calls))
}

// TestPolicyAllowsWhatIsCalled runs all there is and compares the calls with the
// policy: nothing is missing, and nothing is too much.
func TestPolicyAllowsWhatIsCalled(t *testing.T) {
	b := backend(fakedynamo.Options{})
	var servers []*fakedynamo.Server
	open := b.Open
	b.Open = func(tb testing.TB, o storetest.Options) storetest.Database {
		d := open(tb, o).(database)
		d.server.ResetStats()
		servers = append(servers, d.server)
		return d
	}
	storetest.Model(t, b, storetest.ModelOptions{Seed: 3, Seeds: 1, Steps: 300})
	if got, want := called(servers...), allowed(t, "policy/run.json"); !slices.Equal(got, want) {
		t.Errorf("a bridge calls %q, and policy/run.json allows %q", got, want)
	}

	admin := fakedynamo.New(fakedynamo.Options{Describes: 2})
	t.Cleanup(admin.Close)
	must(t, dynamodb.EnsureTable(t.Context(), client(admin), dynamodb.Options{}))
	if got, want := called(admin), allowed(t, "policy/admin.json"); !slices.Equal(got, want) {
		t.Errorf("making a table calls %q, and policy/admin.json allows %q", got, want)
	}
}

// TestLeasesNeedNoMore: leases are rows of the same table.
func TestLeasesNeedNoMore(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	leases := db.open(t, nil, nil).Leases()
	db.server.ResetStats()
	lease, err := leases.Acquire(t.Context(), gobridge.AcquireRequest{Partition: part, Owner: "o", Term: 1e9})
	must(t, err)
	_, err = leases.Renew(t.Context(), []gobridge.Lease{lease})
	must(t, err)
	must(t, leases.Release(t.Context(), lease))
	_, err = leases.Leases(t.Context())
	must(t, err)
	may := allowed(t, "policy/run.json")
	for _, call := range called(db.server) {
		if !slices.Contains(may, call) {
			t.Errorf("leases call %s, which policy/run.json does not allow", call)
		}
	}
}
