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

// pages reads all pages and returns the sort keys.
func (w *world) pages(in *dynamodb.QueryInput) (sorts []string) {
	w.t.Helper()
	q, count := *in, 0
	for {
		out, err := w.client.Query(w.t.Context(), &q)
		w.must(err)
		count++
		for _, it := range out.Items {
			sorts = append(sorts, text(it["SK"]))
		}
		if q.ExclusiveStartKey = out.LastEvaluatedKey; q.ExclusiveStartKey == nil || count > 1000 {
			return sorts
		}
	}
}

func (w *world) queryInput(condition string, values attrs) *dynamodb.QueryInput {
	return &dynamodb.QueryInput{TableName: w.table, KeyConditionExpression: aws.String(condition), ExpressionAttributeValues: values}
}

func TestQueryRanges(t *testing.T) {
	w := newWorld(t)
	for _, sk := range []string{"a", "b#1", "b#2", "b", "c", "B", "é", "\U0001F600", "\uFFFD"} {
		w.must(w.put(attrs{"PK": str("p"), "SK": str(sk), "odd": num(len(sk) % 2)}))
		w.must(w.put(attrs{"PK": str("p2"), "SK": str(sk)}))
	}
	for condition, want := range map[string]string{
		"PK = :p":                                      "B a b b#1 b#2 c é \uFFFD \U0001F600",
		"PK = :p AND SK = :a":                          "b",
		":x = PK":                                      "",
		"SK = :a AND PK = :p":                          "b",
		"PK = :p AND SK < :a":                          "B a",
		"PK = :p AND SK <= :a":                         "B a b",
		"PK = :p AND SK > :a":                          "b#1 b#2 c é \uFFFD \U0001F600",
		"(PK = :p) AND (SK >= :a)":                     "b b#1 b#2 c é \uFFFD \U0001F600",
		"PK = :p AND SK BETWEEN :a AND :c":             "b b#1 b#2 c",
		"PK = :p AND begins_with(SK, :a)":              "b b#1 b#2",
		"#p = :p AND begins_with(#s, :a)":              "b b#1 b#2",
		"PK = :p AND SK BETWEEN :a AND :a AND SK = :a": "",
	} {
		values := attrs{}
		for name, v := range (attrs{":p": str("p"), ":a": str("b"), ":c": str("c")}) {
			if strings.Contains(condition, name) {
				values[name] = v
			}
		}
		in := w.queryInput(condition, values)
		if strings.Contains(condition, "#") {
			in.ExpressionAttributeNames = map[string]string{"#p": "PK", "#s": "SK"}
		}
		if want == "" {
			_, err := w.client.Query(t.Context(), in)
			w.wantCode(err, "ValidationException", "")
			continue
		}
		wanted := strings.Fields(want)
		for _, limit := range []int32{0, 1, 2, 100} {
			q := *in
			if limit > 0 {
				q.Limit = aws.Int32(limit)
			}
			if got := w.pages(&q); !slices.Equal(got, wanted) {
				t.Errorf("%s limit %d: %q, want %q", condition, limit, got, wanted)
			}
			q.ScanIndexForward = aws.Bool(false)
			got := w.pages(&q)
			slices.Reverse(got)
			if !slices.Equal(got, wanted) {
				t.Errorf("%s limit %d backwards: %q, want %q", condition, limit, got, wanted)
			}
		}
	}
}

func TestQueryRefusals(t *testing.T) {
	w := newWorld(t)
	p := attrs{":p": str("p")}
	with := func(name string, v types.AttributeValue) attrs { return attrs{":p": str("p"), name: v} }
	for name, in := range map[string]*dynamodb.QueryInput{
		"no hash key":        w.queryInput("SK = :p", p),
		"hash not equal":     w.queryInput("begins_with(PK, :p)", p),
		"or":                 w.queryInput("PK = :p OR PK = :q", with(":q", str("q"))),
		"other attribute":    w.queryInput("PK = :p AND other = :q", with(":q", str("q"))),
		"wrong type":         w.queryInput("PK = :q", attrs{":q": num(1)}),
		"empty key":          w.queryInput("PK = :q", attrs{":q": str("")}),
		"not equal":          w.queryInput("PK = :p AND SK <> :q", with(":q", str("q"))),
		"in":                 w.queryInput("PK = :p AND SK IN (:q)", with(":q", str("q"))),
		"two on the sort":    w.queryInput("PK = :p AND SK > :q AND SK < :r", attrs{":p": str("p"), ":q": str("q"), ":r": str("r")}),
		"unused value":       w.queryInput("PK = :p", with(":q", str("q"))),
		"no such index":      {TableName: w.table, IndexName: aws.String("None"), KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p},
		"consistent index":   {TableName: w.table, IndexName: aws.String("BySort"), KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, ConsistentRead: aws.Bool(true)},
		"limit zero":         {TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, Limit: aws.Int32(0)},
		"filter on a key":    {TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), FilterExpression: aws.String("SK = :p"), ExpressionAttributeValues: p},
		"half a start key":   {TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, ExclusiveStartKey: attrs{"PK": str("p")}},
		"foreign start key":  {TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, ExclusiveStartKey: key("q", "1")},
		"start key outside":  {TableName: w.table, KeyConditionExpression: aws.String("PK = :p AND SK > :p"), ExpressionAttributeValues: p, ExclusiveStartKey: key("p", "a")},
		"all of part index":  {TableName: w.table, IndexName: aws.String("BySort"), KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, Select: types.SelectAllAttributes},
		"no key condition":   {TableName: w.table, FilterExpression: aws.String("x = :p"), ExpressionAttributeValues: p},
		"count of specifics": {TableName: w.table, KeyConditionExpression: aws.String("PK = :p"), ExpressionAttributeValues: p, Select: types.SelectCount, ProjectionExpression: aws.String("SK")},
	} {
		if _, err := w.client.Query(t.Context(), in); code(err) != "ValidationException" {
			if name == "empty key" && w.elsewhere("an empty key is looked for") {
				continue
			}
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilterAndCountComeAfterLimit(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.must(w.put(attrs{"PK": str("p"), "SK": str(fmt.Sprintf("%02d", i)), "odd": num(i % 2)}))
	}
	in := w.queryInput("PK = :p", attrs{":p": str("p"), ":o": num(1)})
	in.FilterExpression, in.Limit = aws.String("odd = :o"), aws.Int32(10)
	out, err := w.client.Query(t.Context(), in)
	w.must(err)
	if out.Count != 5 || out.ScannedCount != 10 || text(out.LastEvaluatedKey["SK"]) != "09" {
		t.Errorf("count %d, scanned %d, last %v", out.Count, out.ScannedCount, dumpAll(out.LastEvaluatedKey))
	}
	in.Select = types.SelectCount
	out, err = w.client.Query(t.Context(), in)
	w.must(err)
	if out.Count != 5 || out.ScannedCount != 10 || len(out.Items) != 0 {
		t.Errorf("counting: count %d, scanned %d, %d items", out.Count, out.ScannedCount, len(out.Items))
	}
	// A page that ends with the last item still names a next one, which is empty.
	in.Select, in.Limit, in.ExclusiveStartKey = "", aws.Int32(10), out.LastEvaluatedKey
	out, err = w.client.Query(t.Context(), in)
	w.must(err)
	if out.LastEvaluatedKey == nil {
		t.Error("a full page has no LastEvaluatedKey")
	}
	in.ExclusiveStartKey = out.LastEvaluatedKey
	out, err = w.client.Query(t.Context(), in)
	w.must(err)
	if out.LastEvaluatedKey != nil || out.ScannedCount != 0 {
		t.Errorf("behind the end: %d items, last %v", out.ScannedCount, out.LastEvaluatedKey)
	}
}

func TestPagesEndAtOneMegabyteBeforeTheFilter(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.must(w.put(attrs{"PK": str("p"), "SK": str(fmt.Sprintf("%02d", i)), "v": str(strings.Repeat("x", 50_000))}))
	}
	in := w.queryInput("PK = :p", attrs{":p": str("p"), ":v": str("none")})
	in.FilterExpression, in.ProjectionExpression = aws.String("v = :v"), aws.String("SK")
	out, err := w.client.Query(t.Context(), in)
	w.must(err)
	if out.ScannedCount < 20 || out.ScannedCount > 21 || out.Count != 0 || out.LastEvaluatedKey == nil {
		t.Errorf("scanned %d, count %d, last %v", out.ScannedCount, out.Count, dumpAll(out.LastEvaluatedKey))
	}
	scanned, err := w.client.Scan(t.Context(), &dynamodb.ScanInput{TableName: w.table, Select: types.SelectCount})
	w.must(err)
	if scanned.LastEvaluatedKey == nil {
		t.Error("a scan of 1.5 MB came in one page")
	}
}

func TestPagesUnderWrites(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.must(w.put(key("p", fmt.Sprintf("%02d", i))))
	}
	in := w.queryInput("PK = :p", attrs{":p": str("p")})
	in.Limit = aws.Int32(10)
	out, err := w.client.Query(t.Context(), in)
	w.must(err)
	// The item at the cursor goes, others come on both sides of it.
	_, err = w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: w.table, Key: out.LastEvaluatedKey})
	w.must(err)
	w.must(w.put(key("p", "00x")))
	w.must(w.put(key("p", "10x")))
	in.ExclusiveStartKey = out.LastEvaluatedKey
	got := w.pages(in)
	if joined := strings.Join(got, " "); joined != "10 10x 11 12 13 14 15 16 17 18 19" {
		t.Errorf("the rest is %s", joined)
	}
}

func TestProjection(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(sample()))
	out, err := w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: key("p", "1"),
		ProjectionExpression: aws.String("#n, m.a.b, m.k, nothing"), ExpressionAttributeNames: map[string]string{"#n": "n"}})
	w.must(err)
	if got := dumpAll(out.Item); got != "{m={a={b=5} k=1} n=9}" {
		t.Errorf("projected %s", got)
	}
	for _, bad := range []string{"n, n", "status", "n,", "#x", ""} {
		_, err := w.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: w.table, Key: key("p", "1"), ProjectionExpression: aws.String(bad)})
		if code(err) != "ValidationException" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestScan(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.must(w.put(attrs{"PK": str(fmt.Sprint("p", i%7)), "SK": str(fmt.Sprint(i)), "odd": num(i % 2)}))
	}
	read := func(segment, total int32) map[string]int {
		seen := map[string]int{}
		in := &dynamodb.ScanInput{TableName: w.table, Limit: aws.Int32(7), FilterExpression: aws.String("odd = :o"), ExpressionAttributeValues: attrs{":o": num(1)}}
		if total > 0 {
			in.Segment, in.TotalSegments = aws.Int32(segment), aws.Int32(total)
		}
		for {
			out, err := w.client.Scan(t.Context(), in)
			w.must(err)
			for _, it := range out.Items {
				seen[text(it["SK"])]++
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				return seen
			}
		}
	}
	whole, parts := read(0, 0), map[string]int{}
	for segment := range int32(3) {
		for sk, n := range read(segment, 3) {
			parts[sk] += n
		}
	}
	for i := 1; i < 60; i += 2 {
		if sk := fmt.Sprint(i); whole[sk] != 1 || parts[sk] != 1 {
			t.Errorf("%s was seen %d times, in segments %d times", sk, whole[sk], parts[sk])
		}
	}
	if len(whole) != 30 || len(parts) != 30 {
		t.Errorf("saw %d and %d items", len(whole), len(parts))
	}
}
