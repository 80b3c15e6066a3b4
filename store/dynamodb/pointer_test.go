package dynamodb_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"gobridge/internal/fakedynamo"
	"gobridge/storetest"
)

// pointers is another layout, taken only as far as its units can be counted on
// the same work: a row of identity and payload that is written, read and ended,
// and beside it, until it ends, a small row under an age-ordered sort key, which
// is all that a claim reads and changes. It needs no index, and a claim with
// ordering keys reads from the front of the age order instead of everything.
type pointers struct {
	t      *testing.T
	server *fakedynamo.Server
	client *ddb.Client
	seq    int
}

type attributes = map[string]types.AttributeValue

func s(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }

func (p *pointers) key(sk string) attributes {
	return attributes{"PK": s("P#orders/mail/0"), "SK": s(sk)}
}

func (p *pointers) must(err error) {
	p.t.Helper()
	must(p.t, err)
}

// fence is a change of the fence row, as part of a transaction.
func (p *pointers) fence() *types.Update {
	return &types.Update{TableName: ptr("gobridge"), Key: p.key("FENCE"), UpdateExpression: ptr("ADD n :one"),
		ExpressionAttributeValues: attributes{":one": &types.AttributeValueMemberN{Value: "1"}}}
}

func (p *pointers) persist(n, call, payload int) {
	for i := range n {
		if i%call == 0 {
			f := p.fence()
			_, err := p.client.UpdateItem(p.t.Context(), &ddb.UpdateItemInput{TableName: f.TableName, Key: f.Key,
				UpdateExpression: f.UpdateExpression, ExpressionAttributeValues: f.ExpressionAttributeValues})
			p.must(err)
		}
		p.seq++
		id := fmt.Sprintf("OUTBOX#0190f7a2-0000-7000-8000-%012d#mail", p.seq)
		row := p.key(id)
		row["hash"], row["state"], row["subject"] = &types.AttributeValueMemberB{Value: make([]byte, 32)}, s("pending"), s("order.placed")
		row["payload"] = &types.AttributeValueMemberB{Value: make([]byte, payload)}
		row["times"] = s(strings.Repeat("t", 40))
		pointer := p.key(fmt.Sprintf("QUEUE#%036d", p.seq))
		pointer["id"], pointer["ordering_key"], pointer["state"] = s(id), s("key-0001"), s("pending")
		for _, it := range []attributes{row, pointer} {
			_, err := p.client.PutItem(p.t.Context(), &ddb.PutItemInput{TableName: ptr("gobridge"), Item: it,
				ConditionExpression: ptr("attribute_not_exists(PK)")})
			p.must(err)
		}
	}
}

// claim reads the front of the queue and claims it.
func (p *pointers) claim(n int) (claimed []attributes) {
	page, err := p.client.Query(p.t.Context(), &ddb.QueryInput{TableName: ptr("gobridge"), ConsistentRead: ptr(true), Limit: ptr(int32(n)),
		KeyConditionExpression:    ptr("PK = :pk AND begins_with(SK, :queue)"),
		ExpressionAttributeValues: attributes{":pk": s("P#orders/mail/0"), ":queue": s("QUEUE#")}})
	p.must(err)
	for from := 0; from < len(page.Items); from += 98 {
		items := []types.TransactWriteItem{{Update: p.fence()}}
		for _, it := range page.Items[from:min(from+98, len(page.Items))] {
			items = append(items, types.TransactWriteItem{Update: &types.Update{TableName: ptr("gobridge"),
				Key: attributes{"PK": it["PK"], "SK": it["SK"]}, UpdateExpression: ptr("SET #s = :claimed, claim_owner = :owner"),
				ExpressionAttributeNames:  map[string]string{"#s": "state"},
				ExpressionAttributeValues: attributes{":claimed": s("claimed"), ":owner": s("gateway-1")}}})
		}
		_, err := p.client.TransactWriteItems(p.t.Context(), &ddb.TransactWriteItemsInput{TransactItems: items})
		p.must(err)
	}
	ask := make([]attributes, len(page.Items))
	for i, it := range page.Items {
		ask[i] = attributes{"PK": it["PK"], "SK": it["id"]}
	}
	for len(ask) > 0 {
		out, err := p.client.BatchGetItem(p.t.Context(), &ddb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			"gobridge": {Keys: ask, ConsistentRead: ptr(true)}}})
		p.must(err)
		ask = out.UnprocessedKeys["gobridge"].Keys
	}
	return page.Items
}

func (p *pointers) settle(claimed []attributes) {
	for _, it := range claimed {
		_, err := p.client.UpdateItem(p.t.Context(), &ddb.UpdateItemInput{TableName: ptr("gobridge"),
			Key: attributes{"PK": it["PK"], "SK": it["id"]}, UpdateExpression: ptr("SET #s = :delivered REMOVE payload"),
			ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: attributes{":delivered": s("delivered")}})
		p.must(err)
		_, err = p.client.DeleteItem(p.t.Context(), &ddb.DeleteItemInput{TableName: ptr("gobridge"), Key: attributes{"PK": it["PK"], "SK": it["SK"]}})
		p.must(err)
	}
}

// TestPointerTable prints what the other layout would cost: make bench-dynamodb.
func TestPointerTable(t *testing.T) {
	if os.Getenv("GOBRIDGE_DYNAMODB_UNITS") == "" {
		t.Skip("prints a table: make bench-dynamodb")
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "item\tby\twaiting\tPERSIST calls\tread\twrite\tCLAIM calls\tread\twrite\tSETTLE calls\tread\twrite\tALL write\tALL read\t")
	for _, w := range []work{
		{payload: 700, call: 1, backlog: 100}, {payload: 700, call: 25, backlog: 100}, {payload: 1 << 10, call: 25, backlog: 100},
		{payload: 16 << 10, call: 25, backlog: 100}, {payload: 100 << 10, call: 25, backlog: 100}, {payload: 700, call: 25, backlog: 10_000},
	} {
		db := newDatabase(t, storetest.Options{}, fakedynamo.Options{})
		p := &pointers{t: t, server: db.server, client: client(db.server)}
		p.persist(w.backlog-batch, 100, w.payload)
		db.server.ResetStats()
		p.persist(batch, w.call, w.payload)
		persist := billOf(db.server, batch)
		claimed := p.claim(batch)
		claim := billOf(db.server, len(claimed))
		p.settle(claimed)
		settle := billOf(db.server, len(claimed))
		fmt.Fprintf(out, "%d B payload\t%d\t%d\t%s\t%s\t%s\t%.2f\t%.2f\t\n", w.payload, w.call, w.backlog, persist, claim, settle,
			persist.write+claim.write+settle.write, persist.read+claim.read+settle.read)
	}
	must(t, out.Flush())
	fmt.Println("The same with a payload row and a small row in age order, keys or not:")
	fmt.Println(b.String())
}
