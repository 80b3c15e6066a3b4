package dynamodb_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/leasetest"
	"gobridge/store/dynamodb"
	"gobridge/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client of a server.
func client(server *fakedynamo.Server) *ddb.Client {
	return ddb.New(ddb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(fakedynamo.Endpoint), HTTPClient: server.HTTPClient(),
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
}

// database is a table under test.
type database struct {
	server  *fakedynamo.Server
	options storetest.Options
}

func newDatabase(tb testing.TB, o storetest.Options, fake fakedynamo.Options) database {
	tb.Helper()
	d := database{fakedynamo.New(fake), o}
	tb.Cleanup(d.server.Close)
	if err := dynamodb.EnsureTable(tb.Context(), client(d.server), dynamodb.Options{}); err != nil {
		tb.Fatal(err)
	}
	return d
}

func (d database) open(tb testing.TB, now func() time.Time, change func(*dynamodb.Options)) *dynamodb.Store {
	tb.Helper()
	o := dynamodb.Options{
		Now: d.options.Now, Retention: d.options.Retention, DeadRetention: d.options.DeadRetention,
		MaxDead: d.options.MaxDead, MaxDeadBytes: d.options.MaxDeadBytes, StaleWindow: d.options.StaleWindow,
		MaxSkew: d.options.MaxSkew, OldestPendingAge: -1,
	}
	if now != nil {
		o.Now = now
	}
	if change != nil {
		change(&o)
	}
	s, err := dynamodb.Open(tb.Context(), client(d.server), o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (d database) Store(tb testing.TB, now func() time.Time) gobridge.Store {
	tb.Helper()
	s := d.open(tb, now, nil)
	s.Impatient()
	return s
}

// Snapshot copies the table as a backup does.
func (d database) Snapshot(testing.TB) func(testing.TB) storetest.Database {
	snapshot := d.server.Snapshot("gobridge")
	return func(tb testing.TB) storetest.Database {
		restored := newDatabase(tb, d.options, fakedynamo.Options{})
		restored.server.Restore(snapshot)
		return restored
	}
}

// backend is a server that does what fake says, and its stores.
func backend(fake fakedynamo.Options) storetest.Backend {
	return storetest.Backend{
		Open:       func(tb testing.TB, o storetest.Options) storetest.Database { return newDatabase(tb, o, fake) },
		ClaimScans: true,
	}
}

func TestStore(t *testing.T) { storetest.Run(t, backend(fakedynamo.Options{})) }

// leaseTable is a table under test for its leases.
type leaseTable struct{ database }

func (l leaseTable) Leases(tb testing.TB, now func() time.Time) gobridge.LeaseStore {
	tb.Helper()
	return l.open(tb, now, nil).Leases()
}

func (l leaseTable) Reopen(testing.TB) leasetest.Database { return l }

func TestLeases(t *testing.T) {
	leasetest.Run(t, leasetest.Backend{Open: func(tb testing.TB) leasetest.Database {
		return leaseTable{newDatabase(tb, storetest.Options{}, fakedynamo.Options{})}
	}})
}
