package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"gobridge"
)

// AdminAPI is what making a table needs of a client; *dynamodb.Client of the AWS
// SDK has it. A running bridge does without the two calls that change a table.
type AdminAPI interface {
	DescribeTable(context.Context, *ddb.DescribeTableInput, ...func(*ddb.Options)) (*ddb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *ddb.DescribeTimeToLiveInput, ...func(*ddb.Options)) (*ddb.DescribeTimeToLiveOutput, error)
	CreateTable(context.Context, *ddb.CreateTableInput, ...func(*ddb.Options)) (*ddb.CreateTableOutput, error)
	UpdateTimeToLive(context.Context, *ddb.UpdateTimeToLiveInput, ...func(*ddb.Options)) (*ddb.UpdateTimeToLiveOutput, error)
}

// projected are the attributes that the index has beside the keys: what
// selecting a record needs, and nothing that a claim changes.
var projected = []string{"not_before", "ordering_key", "retry_at"}

// CreateTable makes the table, with its index, paid by request and with time to
// live on. It fails if there is one of that name. It does not wait; EnsureTable
// does.
func CreateTable(ctx context.Context, client AdminAPI, options Options) error {
	options = options.withDefaults()
	_, err := client.CreateTable(ctx, tableInput(options.Table))
	if err != nil {
		return tableError("create table", options.Table, err)
	}
	return nil
}

func tableInput(table string) *ddb.CreateTableInput {
	keys := func(sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: ptr(attrPK), KeyType: types.KeyTypeHash}, {AttributeName: ptr(sort), KeyType: types.KeyTypeRange},
		}
	}
	return &ddb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: ptr(attrPK), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: ptr(attrSK), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: ptr(attrClaimSort), AttributeType: types.ScalarAttributeTypeB},
		},
		KeySchema: keys(attrSK),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: ptr(claimIndex), KeySchema: keys(attrClaimSort),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: projected},
		}},
	}
}

// EnsureTable makes the table if there is none, waits until it and its index
// can be used, and turns its time to live on. It changes nothing of a table that
// is there beyond that, and returns an error if that is not as it must be. It can
// be called any number of times, by any number of processes.
func EnsureTable(ctx context.Context, client AdminAPI, options Options) error {
	options = options.withDefaults()
	const op = "ensure table"
	found, err := describe(ctx, client, options.Table)
	if err == nil && found == nil {
		_, err = client.CreateTable(ctx, tableInput(options.Table))
		var exists *types.ResourceInUseException
		if errors.As(err, &exists) { // another process was first
			err = nil
		}
	}
	if err != nil {
		return tableError(op, options.Table, err)
	}
	if err := waitActive(ctx, client, options.Table); err != nil {
		return tableError(op, options.Table, err)
	}
	if err := enableTTL(ctx, client, options.Table); err != nil {
		return tableError(op, options.Table, err)
	}
	return CheckTable(ctx, client, options)
}

// describe returns the table, nil if there is none.
func describe(ctx context.Context, client describer, table string) (*types.TableDescription, error) {
	out, err := client.DescribeTable(ctx, &ddb.DescribeTableInput{TableName: &table})
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.Table, nil
}

// waitActive waits until the table and every index of it can be used. The SDK's
// own waiter doesn't look at indexes.
func waitActive(ctx context.Context, client describer, table string) error {
	for n := 0; ; n++ {
		found, err := describe(ctx, client, table)
		if err != nil {
			return err
		}
		if found != nil && found.TableStatus == types.TableStatusActive && indexesActive(found) {
			return nil
		}
		if found != nil && found.TableStatus != types.TableStatusActive && found.TableStatus != types.TableStatusCreating &&
			found.TableStatus != types.TableStatusUpdating {
			return fmt.Errorf("the table is %s", found.TableStatus)
		}
		pause := 50 * time.Millisecond << min(n, 6)
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("the table is not active yet: %w", err)
		}
	}
}

func indexesActive(t *types.TableDescription) bool {
	for _, index := range t.GlobalSecondaryIndexes {
		if index.IndexStatus != types.IndexStatusActive {
			return false
		}
	}
	return true
}

// enableTTL turns time to live on unless it is. A second change within an hour
// is refused by DynamoDB, so it looks first; and when it is refused all the same,
// another process may have been quicker, which shows after a moment.
func enableTTL(ctx context.Context, client AdminAPI, table string) error {
	if on, err := hasTTL(ctx, client, table); on || err != nil {
		return err
	}
	_, refusal := client.UpdateTimeToLive(ctx, &ddb.UpdateTimeToLiveInput{
		TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: ptr(attrTTL), Enabled: yes()},
	})
	var api smithy.APIError
	if refusal == nil || !errors.As(refusal, &api) || api.ErrorCode() != "ValidationException" {
		return refusal
	}
	for n := range ttlLooks {
		if on, err := hasTTL(ctx, client, table); on || err != nil {
			return err
		}
		if err := wait(ctx, 50*time.Millisecond<<n); err != nil {
			return fmt.Errorf("%w: %w", err, refusal)
		}
	}
	return refusal
}

// ttlLooks is how often a process whose change of the time to live was refused
// looks whether it is on: for some six seconds.
const ttlLooks = 7

// hasTTL reports whether time to live is on, or about to be.
func hasTTL(ctx context.Context, client AdminAPI, table string) (bool, error) {
	out, err := client.DescribeTimeToLive(ctx, &ddb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil || out.TimeToLiveDescription == nil {
		return false, err
	}
	status := out.TimeToLiveDescription.TimeToLiveStatus
	return status == types.TimeToLiveStatusEnabled || status == types.TimeToLiveStatusEnabling, nil
}

func tableError(op, table string, err error) error {
	return &gobridge.Error{Op: op + " " + table, Err: err}
}
