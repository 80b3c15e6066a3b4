package fakedynamo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

func TestIndexIsSortedAndSparse(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		it := attrs{"PK": str("p"), "SK": str(fmt.Sprint(i)), "a": str("A"), "b": str("B")}
		if i%2 == 0 {
			it["sort"] = str(fmt.Sprint(9 - i))
		}
		w.must(w.put(it))
	}
	if got := w.list("BySort"); got != "8 6 4 2 0" {
		t.Errorf("index: %s", got)
	}
	set := func(sk, expression string, values attrs) {
		t.Helper()
		_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", sk),
			UpdateExpression: aws.String(expression), ExpressionAttributeValues: values})
		w.must(err)
	}
	set("4", "REMOVE sort", nil)
	set("1", "SET sort = :s", attrs{":s": str("0")})
	set("0", "SET sort = :s", attrs{":s": str("2")})
	if got := w.list("BySort"); got != "1 8 0 6 2" {
		t.Errorf("index after updates: %s", got)
	}
	_, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: w.table, Key: key("p", "8")})
	w.must(err)
	if got := w.list("BySort"); got != "1 0 6 2" {
		t.Errorf("index after a delete: %s", got)
	}
	scanned, err := w.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: w.table, IndexName: aws.String("BySort")})
	w.must(err)
	if len(scanned.Items) != 4 || dumpAll(scanned.Items[0]) != "{PK=p SK=1 a=A sort=0}" {
		t.Errorf("scan of the index: %d items, first %s", len(scanned.Items), dumpAll(scanned.Items[0]))
	}
}

func TestIndexShowsWhatItProjects(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "sort": str("s"), "group": str("g"), "a": str("A"), "b": str("B")}))
	query := func(index, condition, value string, change func(*dynamodb.QueryInput)) (string, error) {
		in := &dynamodb.QueryInput{TableName: w.table, IndexName: aws.String(index), KeyConditionExpression: aws.String(condition),
			ExpressionAttributeValues: attrs{":v": str(value)}}
		if strings.Contains(condition, "#g") {
			in.ExpressionAttributeNames = map[string]string{"#g": "group"}
		}
		if change != nil {
			change(in)
		}
		out, err := w.client.Query(t.Context(), in)
		if err != nil || len(out.Items) == 0 {
			return "", err
		}
		return dumpAll(out.Items[0]), nil
	}
	got, err := query("BySort", "PK = :v", "p", nil)
	w.must(err)
	if got != "{PK=p SK=1 a=A sort=s}" {
		t.Errorf("INCLUDE shows %s", got)
	}
	got, err = query("ByGroup", "#g = :v", "g", nil)
	w.must(err)
	if got != "{PK=p SK=1 group=g}" {
		t.Errorf("KEYS_ONLY shows %s", got)
	}
	if !w.elsewhere("asking for what the index does not project passes") {
		_, err = query("BySort", "PK = :v", "p", func(in *dynamodb.QueryInput) { in.ProjectionExpression = aws.String("SK, b") })
		w.wantCode(err, "ValidationException", "does not project b")
	}
}

func TestIndexTiesPageOnce(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 20 {
		sk := fmt.Sprintf("%02d", i)
		want = append(want, sk)
		w.must(w.put(attrs{"PK": str("p"), "SK": str(sk), "sort": str("same"), "group": str("g")}))
	}
	in := &dynamodb.QueryInput{TableName: w.table, IndexName: aws.String("ByGroup"), KeyConditionExpression: aws.String("#g = :g"),
		ExpressionAttributeNames: map[string]string{"#g": "group"}, ExpressionAttributeValues: attrs{":g": str("g")}, Limit: aws.Int32(3)}
	for _, forward := range []bool{true, false} {
		in.ScanIndexForward = aws.Bool(forward)
		got := w.pages(in)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("forward %v: %v", forward, got)
		}
	}
	out, err := w.client.Query(t.Context(), in)
	w.must(err)
	if len(out.LastEvaluatedKey) != 3 {
		t.Errorf("LastEvaluatedKey %s lacks a key of table or index", dumpAll(out.LastEvaluatedKey))
	}
}

func TestIndexCursorSurvivesItsItem(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.must(w.put(attrs{"PK": str("p"), "SK": str(fmt.Sprint(i)), "sort": str(fmt.Sprint(i))}))
	}
	in := w.queryInput("PK = :p", attrs{":p": str("p")})
	in.IndexName, in.Limit = aws.String("BySort"), aws.Int32(2)
	out, err := w.client.Query(t.Context(), in)
	w.must(err)
	_, err = w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "1"), UpdateExpression: aws.String("REMOVE sort")})
	w.must(err)
	in.ExclusiveStartKey = out.LastEvaluatedKey
	if got := w.pages(in); strings.Join(got, " ") != "2 3 4 5" {
		t.Errorf("the rest is %v", got)
	}
}

func TestIndexKeysAreChecked(t *testing.T) {
	w := newWorld(t)
	for name, v := range map[string]types.AttributeValue{
		"number": num(1), "empty": str(""), "null": &types.AttributeValueMemberNULL{Value: true}, "long": str(strings.Repeat("x", 1025)),
	} {
		if err := w.put(attrs{"PK": str("p"), "SK": str("1"), "sort": v}); code(err) != "ValidationException" {
			if name == "long" && w.elsewhere("index keys may be as long as the item") {
				continue
			}
			t.Errorf("%s: %v", name, err)
		}
	}
}
