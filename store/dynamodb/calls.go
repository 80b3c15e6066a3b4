package dynamodb

import (
	"context"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
)

// API is what the store uses of a client; *dynamodb.Client of the AWS SDK has
// it. The client's own retries are switched off for every call: the store's know
// which answers leave open whether a write happened.
type API interface {
	GetItem(context.Context, *ddb.GetItemInput, ...func(*ddb.Options)) (*ddb.GetItemOutput, error)
	PutItem(context.Context, *ddb.PutItemInput, ...func(*ddb.Options)) (*ddb.PutItemOutput, error)
	UpdateItem(context.Context, *ddb.UpdateItemInput, ...func(*ddb.Options)) (*ddb.UpdateItemOutput, error)
	DeleteItem(context.Context, *ddb.DeleteItemInput, ...func(*ddb.Options)) (*ddb.DeleteItemOutput, error)
	Query(context.Context, *ddb.QueryInput, ...func(*ddb.Options)) (*ddb.QueryOutput, error)
	BatchGetItem(context.Context, *ddb.BatchGetItemInput, ...func(*ddb.Options)) (*ddb.BatchGetItemOutput, error)
	TransactWriteItems(context.Context, *ddb.TransactWriteItemsInput, ...func(*ddb.Options)) (*ddb.TransactWriteItemsOutput, error)
	DescribeTable(context.Context, *ddb.DescribeTableInput, ...func(*ddb.Options)) (*ddb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *ddb.DescribeTimeToLiveInput, ...func(*ddb.Options)) (*ddb.DescribeTimeToLiveOutput, error)
}

// call says for whom a request is made.
type call struct {
	op        string
	partition gobridge.Partition
}

const capacity = types.ReturnConsumedCapacityIndexes

func (s *Store) getItem(ctx context.Context, c call, in *ddb.GetItemInput) (*ddb.GetItemOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "GetItem"}, s.api.GetItem, in)
}

func (s *Store) putItem(ctx context.Context, c call, in *ddb.PutItemInput) (*ddb.PutItemOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "PutItem", write: true}, s.api.PutItem, in)
}

func (s *Store) updateItem(ctx context.Context, c call, in *ddb.UpdateItemInput) (*ddb.UpdateItemOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "UpdateItem", write: true}, s.api.UpdateItem, in)
}

// touchItem is updateItem for a renewal: one whose answer comes after the caller's
// deadline is as good as none, and repeated after that it would only keep others
// waiting for the lease of a process that does not hear.
func (s *Store) touchItem(ctx context.Context, c call, in *ddb.UpdateItemInput) (*ddb.UpdateItemOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "UpdateItem", write: true, casual: true}, s.api.UpdateItem, in)
}

func (s *Store) deleteItem(ctx context.Context, c call, in *ddb.DeleteItemInput) (*ddb.DeleteItemOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "DeleteItem", write: true}, s.api.DeleteItem, in)
}

func (s *Store) query(ctx context.Context, c call, in *ddb.QueryInput) (*ddb.QueryOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.table, capacity
	return send(ctx, s, c, request{name: "Query"}, s.api.Query, in)
}

func (s *Store) transact(ctx context.Context, c call, items []types.TransactWriteItem) error {
	token := newNonce() + newNonce()
	in := &ddb.TransactWriteItemsInput{TransactItems: items, ClientRequestToken: &token, ReturnConsumedCapacity: capacity}
	_, err := send(ctx, s, c, request{name: "TransactWriteItems", write: true}, s.api.TransactWriteItems, in)
	return err
}

// batchGet reads rows, strongly consistent, and returns those that there are.
func (s *Store) batchGet(ctx context.Context, c call, keys []item, projection string) ([]item, error) {
	return s.batchRead(ctx, c, keys, projection, true)
}

// batchRead reads rows, up to 100 with a request.
func (s *Store) batchRead(ctx context.Context, c call, keys []item, projection string, consistent bool) ([]item, error) {
	var out []item
	pending := keys
	for len(pending) > 0 {
		n := min(len(pending), 100)
		ask := types.KeysAndAttributes{Keys: pending[:n], ConsistentRead: &consistent}
		if projection != "" {
			ask.ProjectionExpression, ask.ExpressionAttributeNames = &projection, names(projection)
		}
		in := &ddb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{s.table: ask}, ReturnConsumedCapacity: capacity,
		}
		got, err := send(ctx, s, c, request{name: "BatchGetItem"}, s.api.BatchGetItem, in)
		if err != nil {
			return nil, err
		}
		out = append(out, got.Responses[s.table]...)
		left := got.UnprocessedKeys[s.table].Keys
		if len(got.Responses[s.table]) == 0 && len(left) == n {
			// Nothing was processed: that is throttling without saying so.
			s.observe(Event{Metric: DynamoDBThrottles, Partition: c.partition, Operation: c.op, Resource: "table", Value: 1})
			if err := s.sleep(ctx, backoff(3)); err != nil {
				return nil, err
			}
		}
		pending = append(left[:len(left):len(left)], pending[n:]...)
	}
	return out, nil
}

// queryAll reads every page of a query and hands over its items, until one of
// them makes each return false.
func (s *Store) queryAll(ctx context.Context, c call, in *ddb.QueryInput, each func(item) (bool, error)) error {
	for {
		page, err := s.query(ctx, c, in)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			if more, err := each(it); err != nil || !more {
				return err
			}
		}
		if len(page.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = page.LastEvaluatedKey
	}
}

// names finds the attribute names of expressions, which are all written with
// '#', so that none of DynamoDB's 573 reserved words can be met by accident.
func names(expressions ...string) map[string]string {
	out := map[string]string{}
	for _, e := range expressions {
		for i := 0; i < len(e); i++ {
			if e[i] != '#' {
				continue
			}
			end := i + 1
			for end < len(e) && (e[end] == '_' || 'a' <= e[end] && e[end] <= 'z' || 'A' <= e[end] && e[end] <= 'Z') {
				end++
			}
			out[e[i:end]] = e[i+1 : end]
			i = end - 1
		}
	}
	return out
}

func key(pk, sk string) item { return item{attrPK: str(pk), attrSK: str(sk)} }

func yes() *bool {
	b := true
	return &b
}

func ptr[T any](v T) *T { return &v }
