package fakedynamo_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

func TestUpdateOfNothingMakesAnItem(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		expression *string
		values     attrs
	}{
		"nothing": {}, "remove": {expression: aws.String("REMOVE x")},
		"delete": {aws.String("DELETE x :s"), attrs{":s": &types.AttributeValueMemberSS{Value: []string{"a"}}}},
		"set":    {aws.String("SET x = :s"), attrs{":s": str("a")}},
	} {
		_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", name), UpdateExpression: c.expression, ExpressionAttributeValues: c.values})
		w.must(err)
		if w.get(name) == nil {
			t.Errorf("%s left no item", name)
		}
	}
	w.must(w.transact("", types.TransactWriteItem{Update: &types.Update{TableName: w.table, Key: key("p", "tx"), UpdateExpression: aws.String("REMOVE x")}}))
	if w.get("tx") == nil {
		t.Error("the transaction left no item")
	}
}
