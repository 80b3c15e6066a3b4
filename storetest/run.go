package storetest

import (
	"slices"
	"testing"
	"time"
)

// testCase is one named rule.
type testCase struct {
	name string
	// why says what goes wrong in a system whose store breaks the rule.
	why string
	run func(*fixture)
	// settings changes the default options; nil keeps them.
	settings func(*Options)
	// skip says why a backend can't run the case; empty if it can.
	skip func(Backend, Database) string
}

// cases returns every case of the suite.
func cases() []testCase {
	return slices.Concat(
		identityCases(), ageCases(), persistCases(), bytesCases(),
		claimCases(), costCases(), holdCases(), orderCases(), headCases(), settleCases(),
		deadCases(), redriveCases(), discardCases(), sweepCases(),
		inspectCases(), explainCases(), controlCases(), auditCases(), reportCases(),
		restoreCases(), cancelCases(), concurrencyCases(),
	)
}

// Run checks the backend against every rule, each on a new database, and then
// runs a few seeds of [Model].
func Run(t *testing.T, backend Backend) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, backend) })
	}
	t.Run("Model", func(t *testing.T) { Model(t, backend, ModelOptions{}) })
}

// check runs the case on a new database.
func (c testCase) check(tb testing.TB, backend Backend) {
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("%s: %s", c.name, c.why)
		}
	})
	f := newFixture(tb, backend, c.settings)
	if c.skip != nil {
		if reason := c.skip(backend, f.db); reason != "" {
			tb.Skip(reason)
		}
	}
	c.run(f)
}

// defaults are the settings of a case that has none of its own.
func defaults(now func() time.Time) Options {
	return Options{
		Now:           now,
		Retention:     24 * time.Hour,
		DeadRetention: 30 * 24 * time.Hour,
		MaxDead:       100_000,
		MaxDeadBytes:  1 << 30,
		StaleWindow:   5 * time.Minute,
		MaxSkew:       time.Hour,
	}
}
