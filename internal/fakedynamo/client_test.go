package fakedynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"gobridge/internal/fakedynamo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type attrs = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n any) types.AttributeValue    { return &types.AttributeValueMemberN{Value: fmt.Sprint(n)} }
func key(pk, sk string) attrs           { return attrs{"PK": str(pk), "SK": str(sk)} }

// text is the text of a string or a number.
func text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case nil:
		return "-"
	}
	return fmt.Sprintf("%T", v)
}

// options make no retries: a test sees the first answer.
func options(s *fakedynamo.Server) dynamodb.Options {
	o := dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(fakedynamo.Endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""), Retryer: aws.NopRetryer{},
	}
	if s != nil {
		o.HTTPClient = s.HTTPClient()
	}
	return o
}

// world is one table, made by tableInput, in the fake; or, if the environment
// variable GOBRIDGE_DYNAMODB_ENDPOINT is set and the test needs none of the fake's
// switches, at that endpoint: the same tests then check an emulator, or DynamoDB.
type world struct {
	t      *testing.T
	server *fakedynamo.Server // nil at another endpoint
	client *dynamodb.Client
	table  *string
}

func tableInput(name string) *dynamodb.CreateTableInput {
	define := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS}
	}
	return &dynamodb.CreateTableInput{
		TableName: aws.String(name), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{define("PK"), define("SK"), define("sort"), define("group")},
		KeySchema:            schema("PK", "SK"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("BySort"), KeySchema: schema("PK", "sort"),
				Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: []string{"a"}}},
			{IndexName: aws.String("ByGroup"), KeySchema: schema("group", ""),
				Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}},
		},
	}
}

func schema(hash, sort string) []types.KeySchemaElement {
	out := []types.KeySchemaElement{{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash}}
	if sort != "" {
		out = append(out, types.KeySchemaElement{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange})
	}
	return out
}

// newWorld is for tests of what every DynamoDB does.
func newWorld(t *testing.T) *world {
	t.Helper()
	endpoint := os.Getenv("GOBRIDGE_DYNAMODB_ENDPOINT")
	if endpoint == "" {
		return newFake(t, fakedynamo.Options{})
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := options(nil)
	o.BaseEndpoint, o.HTTPClient = aws.String(endpoint), &http.Client{Transport: transport}
	return newTable(t, &world{t: t, client: dynamodb.New(o)})
}

// newFake is for tests of the fake's switches.
func newFake(t *testing.T, o fakedynamo.Options) *world {
	t.Helper()
	s := fakedynamo.New(o)
	t.Cleanup(s.Close)
	return newTable(t, &world{t: t, server: s, client: dynamodb.New(options(s))})
}

func newTable(t *testing.T, w *world) *world {
	t.Helper()
	w.table = aws.String(fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", "#", "-").Replace(t.Name()), time.Now().UnixNano()))
	_, err := w.client.CreateTable(t.Context(), tableInput(*w.table))
	w.must(err)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		_, _ = w.client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: w.table})
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// elsewhere reports that the test runs against another endpoint, where the case is
// known to go otherwise; the reason is logged. DynamoDB's reference sides with the
// fake, or is silent, and then the fake takes the harder reading.
func (w *world) elsewhere(reason string) bool {
	if w.server == nil {
		w.t.Log("not checked at this endpoint: " + reason)
	}
	return w.server == nil
}

// wantCode fails the test unless err is this API error and says the fragment.
func (w *world) wantCode(err error, want, fragment string) {
	w.t.Helper()
	if code(err) != want || err != nil && !strings.Contains(err.Error(), fragment) {
		w.t.Errorf("got %v, want %s with %q", err, want, fragment)
	}
}

func (w *world) put(it attrs) error {
	_, err := w.client.PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: w.table, Item: it})
	return err
}

func (w *world) get(sk string) attrs {
	w.t.Helper()
	out, err := w.client.GetItem(w.t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: key("p", sk), ConsistentRead: aws.Bool(true)})
	w.must(err)
	return out.Item
}

func (w *world) transact(token string, items ...types.TransactWriteItem) error {
	in := &dynamodb.TransactWriteItemsInput{TransactItems: items}
	if token != "" {
		in.ClientRequestToken = aws.String(token)
	}
	_, err := w.client.TransactWriteItems(w.t.Context(), in)
	return err
}

// list reads the partition p of an index, or of the table if index is empty, and
// returns the sort keys joined.
func (w *world) list(index string) string {
	w.t.Helper()
	in := &dynamodb.QueryInput{TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: attrs{":p": str("p")}}
	if index != "" {
		in.IndexName = aws.String(index)
	}
	var sorts []string
	for {
		out, err := w.client.Query(w.t.Context(), in)
		w.must(err)
		for _, it := range out.Items {
			sorts = append(sorts, text(it["SK"]))
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return strings.Join(sorts, " ")
		}
	}
}

func (w *world) txPut(pk, sk, v, condition string) types.TransactWriteItem {
	p := &types.Put{TableName: w.table, Item: attrs{"PK": str(pk), "SK": str(sk), "v": str(v)}, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	if condition != "" {
		p.ConditionExpression = aws.String(condition)
	}
	return types.TransactWriteItem{Put: p}
}

func (w *world) txAdd(pk, sk string, n int) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{TableName: w.table, Key: key(pk, sk),
		UpdateExpression: aws.String("ADD n :n"), ExpressionAttributeValues: attrs{":n": num(n)}}}
}

func reasons(err error) string {
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		return "not cancelled: " + code(err)
	}
	var codes []string
	for _, r := range cancelled.CancellationReasons {
		codes = append(codes, aws.ToString(r.Code))
	}
	return strings.Join(codes, " ")
}

func asError[E error](err error, target *E) bool { return errors.As(err, target) }
