package fakedynamo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

func (w *world) describe() *types.TableDescription {
	w.t.Helper()
	out, err := w.client.DescribeTable(w.t.Context(), &dynamodb.DescribeTableInput{TableName: w.table})
	w.must(err)
	return out.Table
}

func TestTableDescription(t *testing.T) {
	w := newWorld(t)
	d := w.describe()
	var indexes []string
	for _, x := range d.GlobalSecondaryIndexes {
		keys := ""
		for _, k := range x.KeySchema {
			keys += " " + *k.AttributeName + ":" + string(k.KeyType)
		}
		indexes = append(indexes, fmt.Sprint(*x.IndexName, keys, " ", x.Projection.ProjectionType, x.Projection.NonKeyAttributes, " ", x.IndexStatus))
	}
	slices.Sort(indexes)
	want := "ByGroup group:HASH KEYS_ONLY[] ACTIVE; BySort PK:HASH sort:RANGE INCLUDE[a] ACTIVE"
	if got := strings.Join(indexes, "; "); got != want {
		t.Errorf("indexes %s, want %s", got, want)
	}
	if d.TableStatus != types.TableStatusActive || d.BillingModeSummary == nil || d.BillingModeSummary.BillingMode != types.BillingModePayPerRequest || len(d.AttributeDefinitions) != 4 {
		t.Errorf("status %s, billing %v, definitions %v", d.TableStatus, d.BillingModeSummary, d.AttributeDefinitions)
	}
	_, err := w.client.CreateTable(t.Context(), tableInput(*w.table))
	w.wantCode(err, "ResourceInUseException", "")
}

func TestTableInputIsChecked(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*dynamodb.CreateTableInput){
		"undefined key": func(in *dynamodb.CreateTableInput) { in.KeySchema = schema("PK", "other") },
		"unused definition": func(in *dynamodb.CreateTableInput) {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String("x"), AttributeType: "S"})
		},
		"no projection type": func(in *dynamodb.CreateTableInput) { in.GlobalSecondaryIndexes[0].Projection = &types.Projection{} },
		"short name":         func(in *dynamodb.CreateTableInput) { in.TableName = aws.String("ab") },
		"throughput too": func(in *dynamodb.CreateTableInput) {
			in.ProvisionedThroughput = &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(1), WriteCapacityUnits: aws.Int64(1)}
		},
		"no throughput": func(in *dynamodb.CreateTableInput) { in.BillingMode = types.BillingModeProvisioned },
		"index twice":   func(in *dynamodb.CreateTableInput) { in.GlobalSecondaryIndexes[1] = in.GlobalSecondaryIndexes[0] },
	} {
		in := tableInput(*w.table + "-x")
		change(in)
		if _, err := w.client.CreateTable(t.Context(), in); code(err) != "ValidationException" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMissingTable(t *testing.T) {
	w := newWorld(t)
	none := aws.String("nothing-here")
	_, err := w.client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: none})
	w.wantCode(err, "ResourceNotFoundException", "")
	_, err = w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: none, Item: key("p", "1")})
	w.wantCode(err, "ResourceNotFoundException", "")
	_, err = w.client.Query(t.Context(), &dynamodb.QueryInput{TableName: none, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: attrs{":p": str("p")}})
	w.wantCode(err, "ResourceNotFoundException", "")
	w.wantCode(w.transact("", types.TransactWriteItem{Put: &types.Put{TableName: none, Item: key("p", "1")}}), "ResourceNotFoundException", "")
}

func TestIndexesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "late": str("x")}))
	update := func(u ...types.GlobalSecondaryIndexUpdate) error {
		_, err := w.client.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: w.table,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("late"), AttributeType: "S"}}, GlobalSecondaryIndexUpdates: u})
		return err
	}
	create := types.GlobalSecondaryIndexUpdate{Create: &types.CreateGlobalSecondaryIndexAction{IndexName: aws.String("ByLate"), KeySchema: schema("late", ""),
		Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}}}
	remove := types.GlobalSecondaryIndexUpdate{Delete: &types.DeleteGlobalSecondaryIndexAction{IndexName: aws.String("ByGroup")}}
	if !w.elsewhere("several index updates at once pass") {
		w.wantCode(update(create, remove), "LimitExceededException", "")
	}
	w.must(update(create))
	w.settle()
	out, err := w.client.Query(t.Context(), &dynamodb.QueryInput{TableName: w.table, IndexName: aws.String("ByLate"),
		KeyConditionExpression: aws.String("late = :l"), ExpressionAttributeValues: attrs{":l": str("x")}})
	w.must(err)
	if len(out.Items) != 1 {
		t.Errorf("the new index shows %d items", len(out.Items))
	}
	_, err = w.client.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: w.table, GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{remove}})
	w.must(err)
	w.settle()
	if n := len(w.describe().GlobalSecondaryIndexes); n != 2 {
		t.Errorf("%d indexes are left", n)
	}
}

// settle waits until the table and its indexes have settled.
func (w *world) settle() {
	w.t.Helper()
	for range 1000 {
		d := w.describe()
		busy := d.TableStatus != types.TableStatusActive
		for _, x := range d.GlobalSecondaryIndexes {
			busy = busy || x.IndexStatus != types.IndexStatusActive
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("the table doesn't settle")
}

func TestTablesTakeTheirTime(t *testing.T) {
	w := newFake(t, fakedynamo.Options{Describes: 2})
	w.wantCode(w.put(key("p", "1")), "ResourceNotFoundException", "")
	for _, want := range []types.TableStatus{"CREATING", "CREATING"} {
		if got := w.describe().TableStatus; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	}
	// The table is there before its indexes are: the SDK's waiter stops too early.
	w.must(w.put(key("p", "1")))
	if got := w.describe().GlobalSecondaryIndexes[0].IndexStatus; got != types.IndexStatusCreating {
		t.Errorf("index status %s", got)
	}
	in := w.queryInput("PK = :p", attrs{":p": str("p")})
	in.IndexName = aws.String("BySort")
	_, err := w.client.Query(t.Context(), in)
	w.wantCode(err, "ValidationException", "backfilling")
	w.settle()
	_, err = w.client.Query(t.Context(), in)
	w.must(err)
	_, err = w.client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: w.table})
	w.must(err)
	w.wantCode(w.put(key("p", "1")), "ResourceNotFoundException", "")
	if got := w.describe().TableStatus; got != types.TableStatusDeleting {
		t.Errorf("status %s", got)
	}
	w.describe()
	_, err = w.client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: w.table})
	w.wantCode(err, "ResourceNotFoundException", "")
}

func TestListTables(t *testing.T) {
	w := newWorld(t)
	var names []string
	in := &dynamodb.ListTablesInput{Limit: aws.Int32(1)}
	second := *w.table + "-2"
	_, err := w.client.CreateTable(t.Context(), tableInput(second))
	w.must(err)
	for {
		out, err := w.client.ListTables(t.Context(), in)
		w.must(err)
		names = append(names, out.TableNames...)
		if in.ExclusiveStartTableName = out.LastEvaluatedTableName; in.ExclusiveStartTableName == nil {
			break
		}
	}
	if !slices.Contains(names, *w.table) || !slices.Contains(names, second) {
		t.Errorf("listed %v", names)
	}
	_, err = w.client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: aws.String(second)})
	w.must(err)
}

func TestTimeToLive(t *testing.T) {
	w := newWorld(t)
	set := func(enabled bool) error {
		_, err := w.client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: w.table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(enabled)}})
		return err
	}
	w.must(set(true))
	out, err := w.client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: w.table})
	w.must(err)
	if got := aws.ToString(out.TimeToLiveDescription.AttributeName); got != "expires" {
		t.Errorf("attribute %q", got)
	}
	if w.elsewhere("a second change within the hour passes") {
		return
	}
	w.wantCode(set(false), "ValidationException", "multiple times")
	w.server.Advance(time.Hour)
	w.must(set(false))
}
