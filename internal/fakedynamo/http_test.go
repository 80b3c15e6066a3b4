package fakedynamo_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"gobridge/internal/fakedynamo"
)

func overHTTP(t *testing.T) (*fakedynamo.Server, *http.Client) {
	s := fakedynamo.New(fakedynamo.Options{})
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return s, &http.Client{Transport: transport}
}

func TestOverHTTP(t *testing.T) {
	s, client := overHTTP(t)
	o := options(nil)
	o.BaseEndpoint, o.HTTPClient = aws.String(s.URL()), client
	w := newTable(t, &world{t: t, server: s, client: dynamodb.New(o)})
	w.must(w.put(sample()))
	if got := dumpAll(w.get("1")); got != dumpAll(sample()) {
		t.Errorf("got %s", got)
	}
	s.SetHooks(fakedynamo.Hooks{Before: func(*fakedynamo.Call) *fakedynamo.Fault {
		return &fakedynamo.Fault{Kind: fakedynamo.CutAfter}
	}})
	if err := w.put(key("p", "2")); err == nil {
		t.Error("the answer came over a cut connection")
	}
	s.SetHooks(fakedynamo.Hooks{})
	if got := w.list(""); got != "1 2" {
		t.Errorf("the table holds %s", got)
	}
}

// TestRawAnswers pins what the SDK hides: status, type and spelling of errors.
func TestRawAnswers(t *testing.T) {
	s, client := overHTTP(t)
	post := func(operation, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", string(data))
	}
	post("CreateTable", `{"TableName":"raw","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"PK","AttributeType":"S"}],"KeySchema":[{"AttributeName":"PK","KeyType":"HASH"}]}`)
	for _, c := range []struct{ operation, body, want string }{
		{"PutItem", `{"TableName":"raw","Item":{"PK":{"S":"1"},"b":{"B":"AP8="}}}`, `200 {}`},
		{"GetItem", `{"TableName":"raw","Key":{"PK":{"S":"1"}},"ProjectionExpression":"b"}`, `200 {"Item":{"b":{"B":"AP8="}}}`},
		{"GetItem", `{"TableName":"raw","Key":{"PK":{"S":"none"}}}`, `200 {}`},
		{"GetItem", `{"TableName":"none","Key":{"PK":{"S":"1"}}}`, `400 {"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"Requested resource not found"}`},
		{"PutItem", `{"TableName":"raw","Item":{"PK":{"S":"1"}},"ConditionExpression":"attribute_not_exists(PK)","ReturnValuesOnConditionCheckFailure":"ALL_OLD","ReturnValues":"NONE"}`,
			`400 {"Item":{"PK":{"S":"1"},"b":{"B":"AP8="}},"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}`},
		{"TransactWriteItems", `{"TransactItems":[{"Put":{"TableName":"raw","Item":{"PK":{"S":"1"}},"ConditionExpression":"attribute_not_exists(PK)"}},{"Delete":{"TableName":"raw","Key":{"PK":{"S":"2"}}}}]}`,
			`400 {"CancellationReasons":[{"Code":"ConditionalCheckFailed","Message":"The conditional request failed"},{"Code":"None"}],"Message":"Transaction cancelled, please refer cancellation reasons for specific reasons [ConditionalCheckFailed, None]","__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException"}`},
		{"PutItem", `{"TableName":"raw","Item":{"PK":{}}}`, `400 {"__type":"com.amazon.coral.validate#ValidationException","message":"Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"}`},
		{"PutItem", `{"TableName":"raw","Item":{"PK":{"S":"1"},"x":{"S":"1","N":"1"}}}`, `400 {"__type":"com.amazon.coral.validate#ValidationException","message":"Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes"}`},
		{"PutItem", `{"TableName":"raw","Item":{"PK":{"S":"1"}},"Expected":{}}`, `400 {"__type":"UnsupportedByFake","message":"the fake does not support the parameter \"Expected\""}`},
		{"ExecuteStatement", `{}`, `400 {"__type":"UnsupportedByFake","message":"the fake does not support operation \"DynamoDB_20120810.ExecuteStatement\""}`},
	} {
		got := post(c.operation, c.body)
		if c.operation == "PutItem" && strings.Contains(c.want, "ALL_OLD") || strings.Contains(c.body, "ALL_OLD") {
			// The attributes of an item come in any order.
			got = strings.Replace(got, `{"b":{"B":"AP8="},"PK":{"S":"1"}}`, `{"PK":{"S":"1"},"b":{"B":"AP8="}}`, 1)
		}
		if got != c.want {
			t.Errorf("%s %s\ngot  %s\nwant %s", c.operation, c.body, got, c.want)
		}
	}
	for _, broken := range []string{"", "{", `{"TableName":1}`, `{"TableName":"raw","Item":[]}`, `{"TableName":"raw","Item":{"PK":"1"}}`, `{"TableName":"raw","Item":{"PK":{"B":"?"}}}`, "{\"TableName\":\"raw\",\"Item\":{\"PK\":{\"S\":\"\xff\"}}}"} {
		if got := post("PutItem", broken); !strings.Contains(got, "SerializationException") {
			t.Errorf("%q: %s", broken, got)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	w := newFake(t, fakedynamo.Options{Log: true})
	w.server.LagIndex(*w.table, "BySort", 1, 5)
	w.server.SetHooks(fakedynamo.Hooks{Page: func(*fakedynamo.Call, int, bool) {}})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 25 {
				_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "counter"),
					UpdateExpression: aws.String("ADD n :n"), ExpressionAttributeValues: attrs{":n": num(1)}})
				if err != nil {
					t.Error(err)
				}
				if err := w.put(attrs{"PK": str("p"), "SK": str(fmt.Sprint(g, "-", i)), "sort": str("s")}); err != nil {
					t.Error(err)
				}
				w.list("BySort")
				w.server.Stats()
			}
		})
	}
	group.Wait()
	if got := text(w.get("counter")["n"]); got != "200" {
		t.Errorf("counted %s", got)
	}
}
