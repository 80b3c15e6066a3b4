package dynamodb_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/leasetest"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

// liveClient is a client of GOBRIDGE_DYNAMODB_ENDPOINT: the address of an
// emulator, or "aws" for the account and Region of the environment.
func liveClient(tb testing.TB) *ddb.Client {
	tb.Helper()
	endpoint := os.Getenv("GOBRIDGE_DYNAMODB_ENDPOINT")
	if endpoint == "" {
		tb.Skip("GOBRIDGE_DYNAMODB_ENDPOINT names no DynamoDB to test with")
	}
	if endpoint == "aws" {
		cfg, err := config.LoadDefaultConfig(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		return ddb.NewFromConfig(cfg)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	tb.Cleanup(transport.CloseIdleConnections)
	return ddb.New(ddb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
}

// liveTable is a table of a DynamoDB that is not ours.
type liveTable struct {
	client  *ddb.Client
	options dynamodb.Options
}

func newLiveTable(tb testing.TB, o storetest.Options) liveTable {
	tb.Helper()
	l := liveTable{liveClient(tb), dynamodb.Options{
		Table: fmt.Sprintf("gobridge-test-%x", rand.Uint64()),
		Now:   o.Now, Retention: o.Retention, DeadRetention: o.DeadRetention, MaxDead: o.MaxDead, MaxDeadBytes: o.MaxDeadBytes,
		StaleWindow: o.StaleWindow, MaxSkew: o.MaxSkew, OldestPendingAge: -1,
	}}
	if err := dynamodb.EnsureTable(tb.Context(), l.client, l.options); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := l.client.DeleteTable(ctx, &ddb.DeleteTableInput{TableName: &l.options.Table}); err != nil {
			tb.Errorf("table %s is left: %v", l.options.Table, err)
		}
	})
	return l
}

func (l liveTable) Store(tb testing.TB, now func() time.Time) gobridge.Store { return l.open(tb, now) }

func (l liveTable) open(tb testing.TB, now func() time.Time) *dynamodb.Store {
	tb.Helper()
	o := l.options
	if now != nil {
		o.Now = now
	}
	s, err := dynamodb.Open(tb.Context(), l.client, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (l liveTable) Leases(tb testing.TB, now func() time.Time) gobridge.LeaseStore {
	tb.Helper()
	return l.open(tb, now).Leases()
}

// Snapshot copies the rows.
func (l liveTable) Snapshot(tb testing.TB) func(testing.TB) storetest.Database {
	tb.Helper()
	out, err := l.client.Scan(tb.Context(), &ddb.ScanInput{TableName: &l.options.Table, ConsistentRead: aws.Bool(true)})
	if err != nil || len(out.LastEvaluatedKey) > 0 {
		tb.Fatalf("reading the table: %v", err)
	}
	return func(tb testing.TB) storetest.Database {
		tb.Helper()
		copied := newLiveTable(tb, storetest.Options{})
		o := l.options
		o.Table = copied.options.Table
		copied.options = o
		for _, it := range out.Items {
			put(tb, copied.client, o.Table, it)
		}
		return copied
	}
}

func put(tb testing.TB, client *ddb.Client, table string, it map[string]types.AttributeValue) {
	tb.Helper()
	if _, err := client.PutItem(tb.Context(), &ddb.PutItemInput{TableName: &table, Item: it}); err != nil {
		tb.Fatal(err)
	}
}

// TestLiveStore runs the suite against another DynamoDB than the one of these
// tests. Indexes that are behind make cases fail that need a record to be claimed
// the moment it is persisted: those are not for AWS itself.
func TestLiveStore(t *testing.T) {
	liveClient(t)
	storetest.Run(t, storetest.Backend{
		Open:       func(tb testing.TB, o storetest.Options) storetest.Database { return newLiveTable(tb, o) },
		ClaimScans: true,
	})
}

func TestLiveLeases(t *testing.T) {
	liveClient(t)
	leasetest.Run(t, leasetest.Backend{Open: func(tb testing.TB) leasetest.Database { return newLiveTable(tb, storetest.Options{}) }})
}
