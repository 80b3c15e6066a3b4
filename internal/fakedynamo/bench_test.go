package fakedynamo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
)

const table = "outbox"

func benchClient(b *testing.B) *dynamodb.Client {
	b.Helper()
	s := fakedynamo.New(fakedynamo.Options{})
	client := dynamodb.New(options(s))
	if _, err := client.CreateTable(b.Context(), tableInput(table)); err != nil {
		b.Fatal(err)
	}
	return client
}

func benchItem(i int) attrs {
	it := attrs{"PK": str("p"), "SK": str(fmt.Sprintf("%08d", i)), "sort": str(fmt.Sprintf("%08d", i)), "payload": &types.AttributeValueMemberB{Value: []byte(strings.Repeat("x", 1024))}}
	for n := range 10 {
		it[fmt.Sprintf("attribute%d", n)] = num(1000000 + n)
	}
	return it
}

// The figures include the SDK's own work, which is most of them.
func BenchmarkPutItem(b *testing.B) {
	client := benchClient(b)
	for i := 0; b.Loop(); i++ {
		if _, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: benchItem(i), ConditionExpression: aws.String("attribute_not_exists(PK)")}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQueryPage(b *testing.B) {
	client := benchClient(b)
	for i := range 1000 {
		if _, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: benchItem(i)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := client.Query(b.Context(), &dynamodb.QueryInput{TableName: aws.String(table), Limit: aws.Int32(100),
			KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: attrs{":p": str("p")}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTransactUpdate25(b *testing.B) {
	client := benchClient(b)
	var items []types.TransactWriteItem
	for i := range 25 {
		it := benchItem(i)
		if _, err := client.PutItem(b.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: it}); err != nil {
			b.Fatal(err)
		}
		items = append(items, types.TransactWriteItem{Update: &types.Update{TableName: aws.String(table), Key: attrs{"PK": it["PK"], "SK": it["SK"]},
			UpdateExpression:          aws.String("SET claimed = :c, attribute1 = attribute1 + :one"),
			ConditionExpression:       aws.String("attribute_exists(PK)"),
			ExpressionAttributeValues: attrs{":c": str("owner"), ":one": num(1)}}})
	}
	for b.Loop() {
		if _, err := client.TransactWriteItems(b.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items}); err != nil {
			b.Fatal(err)
		}
	}
}
