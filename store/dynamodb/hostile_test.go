package dynamodb_test

import (
	"os"
	"testing"

	"gobridge/internal/fakedynamo"
	"gobridge/storetest"
)

// TestStoreOnTinyPages runs the suite where every page of a query holds few
// rows and transactions take their time, so that reads see parts of them.
func TestStoreOnTinyPages(t *testing.T) {
	storetest.Model(t, backend(fakedynamo.Options{PageItems: 12, Overlap: true}), few())
}

// TestModelUnderFaults runs the model where DynamoDB throttles, conflicts, fails
// and loses answers at any call. The store hides all of it.
func TestModelUnderFaults(t *testing.T) {
	b := backend(fakedynamo.Options{})
	open := b.Open
	b.Open = func(tb testing.TB, o storetest.Options) storetest.Database {
		d := open(tb, o).(database)
		d.server.SetHooks(fakedynamo.Hooks{Before: fakedynamo.Schedule(7, fakedynamo.Rates{
			CutBefore: .02, CutAfter: .02, Conflict: .02, Throttle: .02, ThrottleIndex: .01, Index: "ClaimIndex",
			Partial: .02, InternalError: .01, Unavailable: .01,
		})})
		return d
	}
	storetest.Model(t, b, few())
}

// few is a run for every day, unless the environment asks for more.
func few() storetest.ModelOptions {
	if os.Getenv("STORETEST_SEEDS") != "" {
		return storetest.ModelOptions{}
	}
	return storetest.ModelOptions{Seeds: 2, Steps: 250}
}
