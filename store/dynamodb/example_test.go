package dynamodb_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge"
	"gobridge/internal/fakedynamo"
	"gobridge/messaging"
	"gobridge/store/dynamodb"
)

// An order and the message about it are stored together or not at all.
func ExampleStore_PersistItems() {
	server := fakedynamo.New(fakedynamo.Options{}) // in production: dynamodb.NewFromConfig(cfg)
	defer server.Close()
	db, ctx := client(server), context.Background()
	if err := dynamodb.EnsureTable(ctx, db, dynamodb.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	store, err := dynamodb.Open(ctx, db, dynamodb.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	place := func(order, customer string) error {
		message := gobridge.Record{
			Partition: gobridge.NewPartition("orders", "mail", 0), Binding: "mail",
			Envelope: messaging.Envelope{ID: "placed-" + order, Subject: "order.placed", OrderingKey: customer},
		}
		batch, err := store.PersistItems(ctx, []gobridge.Record{message}) // as late as possible
		if err != nil {
			return err
		}
		row := types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String("gobridge"), // or any other table
			Item: map[string]types.AttributeValue{
				"PK": &types.AttributeValueMemberS{Value: "ORDER"}, "SK": &types.AttributeValueMemberS{Value: order},
			},
			ConditionExpression: aws.String("attribute_not_exists(PK)"),
		}}
		_, err = db.TransactWriteItems(ctx, &ddb.TransactWriteItemsInput{TransactItems: append(batch.Items, row)})
		if err != nil {
			return batch.Err(err)
		}
		batch.Committed(ctx)
		return nil
	}

	fmt.Println(place("1001", "cust-7"))
	fmt.Println(place("1001", "cust-7") != nil)
	n, err := store.CountPending(ctx, "orders/mail/0", 10)
	fmt.Println(n, err)
	// Output:
	// <nil>
	// true
	// 1 <nil>
}
