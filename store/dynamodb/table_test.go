package dynamodb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.yaml.in/yaml/v4"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/store/dynamodb"
)

func newServer(t *testing.T, o fakedynamo.Options) *fakedynamo.Server {
	t.Helper()
	server := fakedynamo.New(o)
	t.Cleanup(server.Close)
	return server
}

// TestEnsureTableCanBeCalledByAll: many processes start at once, and the table
// and its index take their time.
func TestEnsureTableCanBeCalledByAll(t *testing.T) {
	server := newServer(t, fakedynamo.Options{Describes: 3})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := dynamodb.EnsureTable(t.Context(), client(server), dynamodb.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must(t, dynamodb.CheckTable(t.Context(), client(server), dynamodb.Options{}))
	if err := dynamodb.CreateTable(t.Context(), client(server), dynamodb.Options{}); err == nil {
		t.Error("CreateTable of a table that is there returned nil")
	}
}

// slowTTL is a client that shows time to live as off the first so many times it
// is asked, and does something before it is turned on.
type slowTTL struct {
	*ddb.Client
	off  int
	once func()
}

func (s *slowTTL) DescribeTimeToLive(ctx context.Context, in *ddb.DescribeTimeToLiveInput, o ...func(*ddb.Options)) (*ddb.DescribeTimeToLiveOutput, error) {
	out, err := s.Client.DescribeTimeToLive(ctx, in, o...)
	if s.off--; err == nil && s.off >= 0 {
		out.TimeToLiveDescription.TimeToLiveStatus = types.TimeToLiveStatusDisabled
	}
	return out, err
}

func (s *slowTTL) UpdateTimeToLive(ctx context.Context, in *ddb.UpdateTimeToLiveInput, o ...func(*ddb.Options)) (*ddb.UpdateTimeToLiveOutput, error) {
	s.once()
	return s.Client.UpdateTimeToLive(ctx, in, o...)
}

// TestTimeToLiveTurnedOnByAnother: another process turns time to live on between
// the look and the change, and the next look does not show it yet.
func TestTimeToLiveTurnedOnByAnother(t *testing.T) {
	server := newServer(t, fakedynamo.Options{})
	c := &slowTTL{Client: client(server), off: 2, once: func() {
		must(t, dynamodb.EnsureTable(t.Context(), client(server), dynamodb.Options{}))
	}}
	must(t, dynamodb.EnsureTable(t.Context(), c, dynamodb.Options{}))
}

// TestTimeToLiveThatStaysOff: the change is refused, and nobody has made it.
func TestTimeToLiveThatStaysOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t, fakedynamo.Options{})
		c := &slowTTL{Client: client(server), off: 1000, once: func() {
			must(t, dynamodb.EnsureTable(t.Context(), client(server), dynamodb.Options{}))
		}}
		err := dynamodb.EnsureTable(t.Context(), c, dynamodb.Options{})
		if err == nil || !strings.Contains(err.Error(), "modified multiple times") {
			t.Errorf("EnsureTable where time to live stays off: %v, want DynamoDB's refusal", err)
		}
	})
}

func TestOpenWithoutTableSaysSo(t *testing.T) {
	_, err := dynamodb.Open(t.Context(), client(newServer(t, fakedynamo.Options{})), dynamodb.Options{Table: "none"})
	var e *gobridge.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "none") || !strings.Contains(err.Error(), "EnsureTable") {
		t.Errorf("Open without a table: %v", err)
	}
}

// described is a client that describes a table in another way than it is.
type described struct {
	*ddb.Client
	table func(*types.TableDescription)
	ttl   func(*types.TimeToLiveDescription)
}

func (d described) DescribeTable(ctx context.Context, in *ddb.DescribeTableInput, o ...func(*ddb.Options)) (*ddb.DescribeTableOutput, error) {
	out, err := d.Client.DescribeTable(ctx, in, o...)
	if err == nil && d.table != nil {
		d.table(out.Table)
	}
	return out, err
}

func (d described) DescribeTimeToLive(ctx context.Context, in *ddb.DescribeTimeToLiveInput, o ...func(*ddb.Options)) (*ddb.DescribeTimeToLiveOutput, error) {
	out, err := d.Client.DescribeTimeToLive(ctx, in, o...)
	if err == nil && d.ttl != nil {
		d.ttl(out.TimeToLiveDescription)
	}
	return out, err
}

func TestWrongTableIsRefused(t *testing.T) {
	server := newServer(t, fakedynamo.Options{})
	must(t, dynamodb.EnsureTable(t.Context(), client(server), dynamodb.Options{}))
	replica := func(table *types.TableDescription) {
		table.Replicas = []types.ReplicaDescription{{RegionName: ptr("eu-west-1")}}
	}
	tests := []struct {
		name             string
		table            func(*types.TableDescription)
		ttl              func(*types.TimeToLiveDescription)
		what             string
		expected, actual string
	}{
		{name: "other keys", table: func(d *types.TableDescription) { d.KeySchema[1].AttributeName = ptr("claim_sort") },
			what: "key schema", expected: "PK (S) HASH, SK (S) RANGE", actual: "PK (S) HASH, claim_sort (B) RANGE"},
		{name: "no index", table: func(d *types.TableDescription) { d.GlobalSecondaryIndexes = nil },
			what: "index ClaimIndex", expected: "there", actual: "missing"},
		{name: "all projected", table: func(d *types.TableDescription) {
			d.GlobalSecondaryIndexes[0].Projection = &types.Projection{ProjectionType: types.ProjectionTypeAll}
		}, what: "projection of ClaimIndex", expected: "INCLUDE not_before, ordering_key, retry_at", actual: "ALL"},
		{name: "index being made", table: func(d *types.TableDescription) { d.GlobalSecondaryIndexes[0].IndexStatus = types.IndexStatusCreating },
			what: "status of ClaimIndex", expected: "ACTIVE", actual: "CREATING"},
		{name: "index keys", table: func(d *types.TableDescription) { d.GlobalSecondaryIndexes[0].KeySchema[1].AttributeName = ptr("SK") },
			what: "keys of ClaimIndex", expected: "PK (S) HASH, claim_sort (B) RANGE", actual: "PK (S) HASH, SK (S) RANGE"},
		{name: "table going", table: func(d *types.TableDescription) { d.TableStatus = types.TableStatusDeleting },
			what: "status", expected: "ACTIVE", actual: "DELETING"},
		{name: "no time to live", ttl: func(d *types.TimeToLiveDescription) { d.TimeToLiveStatus = types.TimeToLiveStatusDisabled },
			what: "time to live", expected: "on attribute ttl", actual: "off"},
		{name: "other time to live", ttl: func(d *types.TimeToLiveDescription) { d.AttributeName = ptr("expires_at") },
			what: "time to live", expected: "on attribute ttl", actual: "on attribute expires_at"},
		{name: "local index", table: func(d *types.TableDescription) {
			d.LocalSecondaryIndexes = []types.LocalSecondaryIndexDescription{{IndexName: ptr("x")}}
		}, what: "local indexes", expected: "none", actual: "1"},
		{name: "global table", table: replica,
			what: "replicas", expected: "Options.Region", actual: "replicas in eu-west-1"},
		{name: "strongly consistent global table", table: func(d *types.TableDescription) {
			replica(d)
			d.MultiRegionConsistency = types.MultiRegionConsistencyStrong
		}, what: "replicas", expected: "none", actual: "strongly consistent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := dynamodb.Open(t.Context(), described{client(server), tt.table, tt.ttl}, dynamodb.Options{})
			var schema *dynamodb.SchemaError
			if !errors.As(err, &schema) || len(schema.Differences) != 1 {
				t.Fatalf("Open returned %v, want one difference", err)
			}
			d := schema.Differences[0]
			if d.What != tt.what || !strings.Contains(d.Expected, tt.expected) || !strings.Contains(d.Actual, tt.actual) || d.Why == "" {
				t.Errorf("the difference is %+v, want %s: expected %s, actual %s", d, tt.what, tt.expected, tt.actual)
			}
			if text := err.Error(); !strings.Contains(text, d.Expected) || !strings.Contains(text, d.Actual) {
				t.Errorf("the error does not show both sides: %s", text)
			}
		})
	}
	pinned := dynamodb.Options{Region: "eu-central-1"}
	if _, err := dynamodb.Open(t.Context(), described{client(server), replica, nil}, pinned); err != nil {
		t.Errorf("a global table with its Region pinned: %v", err)
	}
	if _, err := dynamodb.Open(t.Context(), described{client(server), replica, nil}, dynamodb.Options{SkipCheck: true}); err != nil {
		t.Errorf("without a check: %v", err)
	}
}

// TestPlanIsWhatIsMade compares the template with the table.
func TestPlanIsWhatIsMade(t *testing.T) {
	var plan struct {
		Resources struct {
			Outbox struct {
				Properties struct {
					TableName              string                                    `yaml:"TableName"`
					BillingMode            string                                    `yaml:"BillingMode"`
					KeySchema              []struct{ AttributeName, KeyType string } `yaml:"KeySchema"`
					GlobalSecondaryIndexes []struct {
						IndexName  string `yaml:"IndexName"`
						Projection struct {
							NonKeyAttributes []string `yaml:"NonKeyAttributes"`
						} `yaml:"Projection"`
					} `yaml:"GlobalSecondaryIndexes"`
				} `yaml:"Properties"`
			} `yaml:"Outbox"`
		} `yaml:"Resources"`
	}
	must(t, yaml.Unmarshal([]byte(dynamodb.Plan(dynamodb.Options{Table: "mine"})), &plan))
	server := newServer(t, fakedynamo.Options{})
	must(t, dynamodb.EnsureTable(t.Context(), client(server), dynamodb.Options{Table: "mine"}))
	out, err := client(server).DescribeTable(t.Context(), &ddb.DescribeTableInput{TableName: ptr("mine")})
	must(t, err)
	made, planned := out.Table, plan.Resources.Outbox.Properties
	if planned.TableName != *made.TableName || planned.BillingMode != string(made.BillingModeSummary.BillingMode) {
		t.Errorf("planned %s, %s; made %s, %s", planned.TableName, planned.BillingMode, *made.TableName, made.BillingModeSummary.BillingMode)
	}
	if len(planned.GlobalSecondaryIndexes) != 1 || planned.GlobalSecondaryIndexes[0].IndexName != *made.GlobalSecondaryIndexes[0].IndexName ||
		len(planned.GlobalSecondaryIndexes[0].Projection.NonKeyAttributes) != len(made.GlobalSecondaryIndexes[0].Projection.NonKeyAttributes) {
		t.Errorf("planned the indexes %+v", planned.GlobalSecondaryIndexes)
	}
}
