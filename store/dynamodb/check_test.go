package dynamodb_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// TestCheckAsksTheTable: a handle that has written nothing finds out by itself, and
// leaves nothing behind.
func TestCheckAsksTheTable(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	must(t, db.open(t, nil, nil).Check(t.Context()))
	out, err := client(db.server).Scan(t.Context(), &ddb.ScanInput{TableName: aws.String("gobridge")})
	must(t, err)
	if len(out.Items) != 0 {
		t.Errorf("it left %v", out.Items)
	}
	throttle(db.server, func(int64) bool { return true })
	err = db.open(t, nil, nil).Check(t.Context())
	if !errors.Is(err, gobridge.ErrThrottled) || !strings.Contains(err.Error(), "Throughput") || !strings.Contains(err.Error(), "table gobridge") {
		t.Errorf("throttled: %v", err)
	}
}

// TestThrottledByANamedLimit: a transaction does not say which limit it met, and
// what a plain write has said stands.
func TestThrottledByANamedLimit(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	s := db.open(t, nil, nil)
	s.Impatient()
	throttle(db.server, func(int64) bool { return true })
	if err := s.Check(t.Context()); err == nil {
		t.Fatal("nothing is throttled")
	}
	for range 3 {
		if err := s.Persist(t.Context(), records("k", numbered(2)...)); err == nil {
			t.Fatal("a persist was not throttled")
		}
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "KeyRange") {
		t.Errorf("%v", err)
	}
}

// TestMoreThroughput: what helps goes by the limit that was met.
func TestMoreThroughput(t *testing.T) {
	for reason, want := range map[string]string{
		"TableWriteProvisionedThroughputExceeded": "capacity",
		"TableWriteMaxOnDemandThroughputExceeded": "maximum",
		"IndexReadAccountLimitExceeded":           "account",
		"TableWriteKeyRangeThroughputExceeded":    "partitions",
		"ThrottlingError":                         "capacity",
	} {
		if got := dynamodb.MoreThroughput(reason); !strings.Contains(got, want) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}

// TestCheckGoesByWhatWritesCameTo: with writes of its own a handle asks nothing more,
// and speaks of throttling when it is more than a tenth.
func TestCheckGoesByWhatWritesCameTo(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	s := db.open(t, nil, nil)
	s.Impatient()
	must(t, s.Persist(t.Context(), records("k", numbered(30)...)))
	db.server.ResetStats()
	must(t, s.Check(t.Context()))
	if total := db.server.Total(); total.Calls != 0 {
		t.Errorf("it made %d requests", total.Calls)
	}
	throttle(db.server, func(n int64) bool { return n%4 != 0 })
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		must(t, s.Persist(t.Context(), records("k", id)))
	}
	if err := s.Check(t.Context()); !errors.Is(err, gobridge.ErrThrottled) {
		t.Errorf("three of four were throttled: %v", err)
	}
}

// TestCheckSaysThatWritesAreDenied, until one is not.
func TestCheckSaysThatWritesAreDenied(t *testing.T) {
	db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
	api := &denying{Client: client(db.server), denied: true}
	s, err := dynamodb.Open(t.Context(), api, dynamodb.Options{})
	must(t, err)
	for range 2 {
		err = s.Check(t.Context())
		var detail *gobridge.Error
		if err == nil || !strings.Contains(err.Error(), "AccessDenied") || !errors.As(err, &detail) || detail.Hint == "" {
			t.Errorf("denied: %v", err)
		}
	}
	api.denied = false
	must(t, s.SetControl(t.Context(), gobridge.Control{Kind: gobridge.Pause, Route: "orders", Reason: "x"}))
	must(t, s.Check(t.Context()))
}

// throttle makes writes fail for want of throughput, by their number.
func throttle(server *fakedynamo.Server, fails func(n int64) bool) {
	var n atomic.Int64
	server.SetHooks(fakedynamo.Hooks{Before: func(c *fakedynamo.Call) *fakedynamo.Fault {
		if strings.HasPrefix(c.Operation, "Get") || c.Operation == "Query" || c.Operation == "BatchGetItem" || strings.HasPrefix(c.Operation, "Describe") {
			return nil
		}
		if fails(n.Add(1)) {
			return &fakedynamo.Fault{Kind: fakedynamo.Throttle}
		}
		return nil
	}})
}

// denying is a client whose credential may read only.
type denying struct {
	*ddb.Client
	denied bool
}

func (d *denying) UpdateItem(ctx context.Context, in *ddb.UpdateItemInput, o ...func(*ddb.Options)) (*ddb.UpdateItemOutput, error) {
	if d.denied {
		return nil, &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized to perform: dynamodb:UpdateItem", Fault: smithy.FaultClient}
	}
	return d.Client.UpdateItem(ctx, in, o...)
}
