package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// describer is what looking at a table needs of a client.
type describer interface {
	DescribeTable(context.Context, *ddb.DescribeTableInput, ...func(*ddb.Options)) (*ddb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *ddb.DescribeTimeToLiveInput, ...func(*ddb.Options)) (*ddb.DescribeTimeToLiveOutput, error)
}

// Difference is one way in which a table is not as it must be.
type Difference struct {
	// What names the property.
	What             string
	Expected, Actual string
	// Why says what would go wrong.
	Why string
}

// SchemaError refuses a table.
type SchemaError struct {
	Table       string
	Differences []Difference
}

func (e *SchemaError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s is not as it must be:", e.Table)
	for _, d := range e.Differences {
		fmt.Fprintf(&b, "\n  %s: expected %s, actual %s (%s)", d.What, d.Expected, d.Actual, d.Why)
	}
	return b.String()
}

// CheckTable compares the table with what the store needs, and returns a
// [*SchemaError] with every difference. It changes nothing.
func CheckTable(ctx context.Context, client describer, options Options) error {
	options = options.withDefaults()
	const op = "check table"
	t, err := describe(ctx, client, options.Table)
	if err != nil {
		return tableError(op, options.Table, err)
	}
	if t == nil {
		return tableError(op, options.Table, errors.New("there is no such table in this account and Region; make it with EnsureTable"))
	}
	ttl, err := client.DescribeTimeToLive(ctx, &ddb.DescribeTimeToLiveInput{TableName: &options.Table})
	if err != nil {
		return tableError(op, options.Table, err)
	}
	check := &tableCheck{table: t}
	check.keys()
	check.index()
	check.status()
	check.timeToLive(ttl.TimeToLiveDescription)
	check.replicas(options.Region)
	if len(check.found) > 0 {
		return tableError(op, options.Table, &SchemaError{Table: options.Table, Differences: check.found})
	}
	return nil
}

type tableCheck struct {
	table *types.TableDescription
	found []Difference
}

func (c *tableCheck) equal(what, expected, actual, why string) {
	if expected != actual {
		c.found = append(c.found, Difference{what, expected, actual, why})
	}
}

func (c *tableCheck) keys() {
	c.equal("key schema", "PK (S) HASH, SK (S) RANGE", c.schema(c.table.KeySchema), "rows are found by these keys; they can't be changed: make a new table")
	c.equal("local indexes", "none", counted(len(c.table.LocalSecondaryIndexes)), "a local index limits a partition to 10 GB")
}

// schema writes a key schema down.
func (c *tableCheck) schema(keys []types.KeySchemaElement) string {
	var out []string
	for _, k := range keys {
		kind := "?"
		for _, d := range c.table.AttributeDefinitions {
			if aws.ToString(d.AttributeName) == aws.ToString(k.AttributeName) {
				kind = string(d.AttributeType)
			}
		}
		out = append(out, fmt.Sprintf("%s (%s) %s", aws.ToString(k.AttributeName), kind, k.KeyType))
	}
	return strings.Join(out, ", ")
}

func counted(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

func (c *tableCheck) index() {
	for _, x := range c.table.GlobalSecondaryIndexes {
		if aws.ToString(x.IndexName) != claimIndex {
			continue
		}
		c.equal("keys of "+claimIndex, "PK (S) HASH, claim_sort (B) RANGE", c.schema(x.KeySchema), "claims read it in ascending age")
		kind, attributes := "none", []string(nil)
		if x.Projection != nil {
			kind, attributes = string(x.Projection.ProjectionType), slices.Sorted(slices.Values(x.Projection.NonKeyAttributes))
		}
		c.equal("projection of "+claimIndex, "INCLUDE "+strings.Join(projected, ", "), strings.TrimSpace(kind+" "+strings.Join(attributes, ", ")),
			"less, and claims can't select; more, and every claim writes the index too")
		c.equal("status of "+claimIndex, "ACTIVE", string(x.IndexStatus), "an index that is being made shows a part of the records")
		return
	}
	c.equal("index "+claimIndex, "there", "missing", "claims of records without ordering keys read it")
}

func (c *tableCheck) status() {
	status := string(c.table.TableStatus)
	if status == string(types.TableStatusUpdating) {
		status = "ACTIVE" // it can be used meanwhile
	}
	c.equal("status", "ACTIVE", status, "the table can't be used")
	if b := c.table.BillingModeSummary; b != nil && b.BillingMode == types.BillingModePayPerRequest {
		return
	}
	if p := c.table.ProvisionedThroughput; p != nil && aws.ToInt64(p.ReadCapacityUnits) > 0 && aws.ToInt64(p.WriteCapacityUnits) > 0 {
		return
	}
	c.equal("billing", "PAY_PER_REQUEST or PROVISIONED", "neither", "the table takes no requests")
}

func (c *tableCheck) timeToLive(d *types.TimeToLiveDescription) {
	if d == nil || d.TimeToLiveStatus == types.TimeToLiveStatusDisabled || d.TimeToLiveStatus == "" {
		c.equal("time to live", "on attribute "+attrTTL, "off", "ended records of partitions without an owner stay for ever")
		return
	}
	c.equal("time to live", "on attribute "+attrTTL, "on attribute "+aws.ToString(d.AttributeName),
		"only "+attrTTL+" stands on ended records alone; another attribute may remove what is still to be delivered")
}

func (c *tableCheck) replicas(region string) {
	if len(c.table.Replicas) == 0 {
		return
	}
	var regions []string
	for _, r := range c.table.Replicas {
		regions = append(regions, aws.ToString(r.RegionName))
	}
	slices.Sort(regions)
	actual := "replicas in " + strings.Join(regions, ", ")
	if c.table.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		c.equal("replicas", "none", actual+", strongly consistent", "such a table has no transactions and no time to live")
		return
	}
	if region == "" {
		c.equal("replicas", "none, or Options.Region set to the one Region that all processes use", actual,
			"conditions see one Region's copy only: owners in two Regions would pass each other's fence, and the last write would win")
	}
}
