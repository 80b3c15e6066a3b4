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

// dump writes a value for comparison, maps and sets in order.
func dump(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberL:
		parts := make([]string, len(v.Value))
		for i, e := range v.Value {
			parts[i] = dump(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *types.AttributeValueMemberM:
		return dumpAll(v.Value)
	case *types.AttributeValueMemberSS:
		slices.Sort(v.Value)
		return fmt.Sprint("SS", v.Value)
	case *types.AttributeValueMemberNS:
		slices.Sort(v.Value)
		return fmt.Sprint("NS", v.Value)
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("B%x", v.Value)
	case *types.AttributeValueMemberBS:
		return fmt.Sprintf("BS%x", v.Value)
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint(v.Value)
	case *types.AttributeValueMemberNULL:
		return "null"
	}
	return text(v)
}

func dumpAll(it attrs, without ...string) string {
	var parts []string
	for name, v := range it {
		if !slices.Contains(without, name) {
			parts = append(parts, name+"="+dump(v))
		}
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, " ") + "}"
}

func sample() attrs {
	return attrs{
		"PK": str("p"), "SK": str("1"), "n": num(9), "s": str("hello"), "b": &types.AttributeValueMemberB{Value: []byte{0, 255}},
		"l": &types.AttributeValueMemberL{Value: []types.AttributeValue{str("x"), num(2)}},
		"m": &types.AttributeValueMemberM{Value: attrs{"a": &types.AttributeValueMemberM{Value: attrs{"b": num(5)}}, "k": num(1)}},
		"q": &types.AttributeValueMemberSS{Value: []string{"u", "v"}},
		"t": &types.AttributeValueMemberBOOL{Value: true},
	}
}

// invalid marks a case that must be refused; the text is a part of the message.
type invalid string

// laxElsewhere are conditions that dynoxide 3.2 lets through.
var laxElsewhere = map[string]string{
	"attribute_type(m, :v)": "an unknown type name only fails the condition",
	"n = n":                 "operands need not be distinct",
	"_n = :v":               "a name may begin with an underscore",
	"n = :v":                "unused placeholders of an update without UpdateExpression pass",
}

func TestConditions(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(sample()))
	list := &types.AttributeValueMemberL{Value: []types.AttributeValue{str("x"), num(2)}}
	for _, c := range []struct {
		expression string
		values     attrs
		names      map[string]string
		want       any // true, false or invalid
	}{
		{"n < :v", attrs{":v": num(10)}, nil, true},
		{"n > :v", attrs{":v": num(10)}, nil, false},
		{"n >= :v AND n <= :v", attrs{":v": num("9.0")}, nil, true},
		{"n = :v", attrs{":v": num("0.09e2")}, nil, true},
		{"n = :v", attrs{":v": str("9")}, nil, false},
		{"n <> :v", attrs{":v": str("9")}, nil, true},
		{"n < :v", attrs{":v": str("a")}, nil, false},
		{"nothing < :v", attrs{":v": num(1)}, nil, false},
		{"nothing = :v", attrs{":v": num(1)}, nil, false},
		{"nothing <> :v", attrs{":v": num(1)}, nil, true},
		{"n BETWEEN :a AND :b", attrs{":a": num(9), ":b": num(10)}, nil, true},
		{"n BETWEEN :a AND :b", attrs{":a": num(10), ":b": num(9)}, nil, invalid("upper bound")},
		{"n IN (:a, :b)", attrs{":a": num(1), ":b": num(9)}, nil, true},
		{"n IN (:a)", attrs{":a": num(1)}, nil, false},
		{"l = :v", attrs{":v": list}, nil, true},
		{"l[0] = :v", attrs{":v": str("x")}, nil, true},
		{"l[7] = :v", attrs{":v": str("x")}, nil, false},
		{"m.a.b = :v", attrs{":v": num(5)}, nil, true},
		{"#m.#a.#b = :v", attrs{":v": num(5)}, map[string]string{"#m": "m", "#a": "a", "#b": "b"}, true},
		{"size(s) = :v", attrs{":v": num(5)}, nil, true},
		{"size(l) = :v AND size(m) = :v AND size(q) = :v", attrs{":v": num(2)}, nil, true},
		{"size(n) = :v", attrs{":v": num(1)}, nil, false},
		{"attribute_exists(m.k) AND attribute_not_exists(m.z)", nil, nil, true},
		{"attribute_type(m, :v)", attrs{":v": str("M")}, nil, true},
		{"attribute_type(m, :v)", attrs{":v": str("X")}, nil, invalid("type")},
		{"begins_with(s, :v)", attrs{":v": str("he")}, nil, true},
		{"begins_with(b, :v)", attrs{":v": &types.AttributeValueMemberB{Value: []byte{0}}}, nil, true},
		{"begins_with(s, :v)", attrs{":v": num(1)}, nil, invalid("operand type")},
		{"contains(s, :v)", attrs{":v": str("ell")}, nil, true},
		{"contains(q, :v)", attrs{":v": str("v")}, nil, true},
		{"contains(l, :v)", attrs{":v": num(2)}, nil, true},
		{"NOT n = :v OR s = :s", attrs{":v": num(9), ":s": str("hello")}, nil, true},
		{"NOT (n = :v OR s = :s)", attrs{":v": num(9), ":s": str("x")}, nil, false},
		{"n = :v OR n = :v AND s = :s", attrs{":v": num(9), ":s": str("x")}, nil, true},
		{"(n = :v OR n = :v) AND s = :s", attrs{":v": num(9), ":s": str("x")}, nil, false},
		{"not n = :v", attrs{":v": num(1)}, nil, true},
		{"((n = :v))", attrs{":v": num(9)}, nil, invalid("redundant parentheses")},
		{"n = n", nil, nil, invalid("distinct")},
		{"status = :v", attrs{":v": num(9)}, nil, invalid("reserved keyword")},
		{"m.status = :v", attrs{":v": num(9)}, nil, invalid("reserved keyword")},
		{"n = :v", attrs{":v": num(9), ":w": num(1)}, nil, invalid("unused in expressions")},
		{"n = :w", attrs{":v": num(9)}, nil, invalid("not defined")},
		{"#n = :v", attrs{":v": num(9)}, nil, invalid("not defined")},
		{"n = :v", attrs{":v": num(9)}, map[string]string{"#x": "x"}, invalid("unused in expressions")},
		{"n == :v", attrs{":v": num(9)}, nil, invalid("Syntax error")},
		{"n = :v AND", attrs{":v": num(9)}, nil, invalid("Syntax error")},
		{"_n = :v", attrs{":v": num(9)}, nil, invalid("Syntax error")},
		{"", nil, nil, invalid("")},
		{"exists(n)", nil, nil, invalid("function")},
		{"attribute_exists(:v)", attrs{":v": num(1)}, nil, invalid("")},
	} {
		_, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "1"),
			ConditionExpression: aws.String(c.expression), ExpressionAttributeValues: c.values, ExpressionAttributeNames: c.names})
		switch want := c.want.(type) {
		case invalid:
			if code(err) != "ValidationException" || !strings.Contains(err.Error(), string(want)) {
				if lax := laxElsewhere[c.expression]; lax != "" && w.elsewhere(lax) {
					continue
				}
				t.Errorf("%s: got %v, want ValidationException with %q", c.expression, err, want)
			}
		case bool:
			if want && err != nil || !want && code(err) != "ConditionalCheckFailedException" {
				t.Errorf("%s: got %v, want %v", c.expression, err, want)
			}
		}
	}
}

func TestUpdates(t *testing.T) {
	w := newWorld(t)
	set := func(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }
	list := func(v ...types.AttributeValue) types.AttributeValue { return &types.AttributeValueMemberL{Value: v} }
	for _, c := range []struct {
		expression string
		values     attrs
		want       any // the item without its key, or invalid
	}{
		{"SET n = n + :v", attrs{":v": num(1)}, "{b=B00ff l=[x 2] m={a={b=5} k=1} n=10 q=SS[u v] s=hello t=true}"},
		{"SET n = :v - n REMOVE b, l, m, q, t", attrs{":v": num("0.5")}, "{n=-8.5 s=hello}"},
		{"SET n = s, s = n REMOVE b, l, m, q, t", nil, "{n=hello s=9}"},
		{"SET x = if_not_exists(x, :v), n = if_not_exists(n, :v) REMOVE b, l, m, q, t", attrs{":v": num(0)}, "{n=9 s=hello x=0}"},
		{"SET x = if_not_exists(x, :v) + :w REMOVE b, l, m, q, t", attrs{":v": num(0), ":w": num(1)}, "{n=9 s=hello x=1}"},
		{"SET l = list_append(l, :v), x = list_append(if_not_exists(x, :e), :v) REMOVE b, m, n, q, t", attrs{":v": list(num(3)), ":e": list()}, "{l=[x 2 3] s=hello x=[3]}"},
		{"SET l[1] = :v, l[9] = :w REMOVE b, m, n, q, t", attrs{":v": num(7), ":w": num(8)}, "{l=[x 7 8] s=hello}"},
		{"REMOVE l[0], l[1], b, m, n, q, t", nil, "{l=[] s=hello}"},
		{"SET m.a.b = :v, m.z = :v REMOVE m.k, b, l, n, q, t", attrs{":v": num(7)}, "{m={a={b=7} z=7} s=hello}"},
		{"ADD n :v, x :v, q :s DELETE t :s", attrs{":v": num(1), ":s": set("w")}, invalid("incorrect data type")},
		{"ADD n :v, x :v, q :s REMOVE b, l, m, s, t", attrs{":v": num(1), ":s": set("w", "u")}, "{n=10 q=SS[u v w] x=1}"},
		{"DELETE q :s REMOVE b, l, m, s, t", attrs{":s": set("u", "z")}, "{n=9 q=SS[v]}"},
		{"DELETE q :s REMOVE b, l, m, s, t", attrs{":s": set("u", "v")}, "{n=9}"},
		{"SET x = x + :v", attrs{":v": num(1)}, invalid("does not exist in the item")},
		{"SET x = y", nil, invalid("does not exist in the item")},
		{"SET s = s + :v", attrs{":v": num(1)}, invalid("incorrect data type")},
		{"SET n = n + :v", attrs{":v": str("a")}, invalid("operand type")},
		{"ADD n :v", attrs{":v": str("a")}, invalid("operand type")},
		{"ADD s :v", attrs{":v": num(1)}, invalid("incorrect data type")},
		{"SET x.y = :v", attrs{":v": num(1)}, invalid("document path")},
		{"SET s.y = :v", attrs{":v": num(1)}, invalid("document path")},
		{"SET PK = :v", attrs{":v": str("a")}, invalid("part of the key")},
		{"REMOVE SK", nil, invalid("part of the key")},
		{"SET n = :v, n = :v", attrs{":v": num(1)}, invalid("overlap")},
		{"SET m.a = :v REMOVE m.a.b", attrs{":v": num(1)}, invalid("overlap")},
		{"SET n = :v SET s = :v", attrs{":v": num(1)}, invalid("only be used once")},
		{"SET status = :v", attrs{":v": num(1)}, invalid("reserved keyword")},
		{"SET n = :v,", attrs{":v": num(1)}, invalid("Syntax error")},
		{"n = :v", attrs{":v": num(1)}, invalid("Syntax error")},
		{"SET n = size(s)", nil, invalid("")},
		{"SET n = n + :v", attrs{":v": num("0." + strings.Repeat("1", 38))}, invalid("")},
		{"SET sort = :v", attrs{":v": num(1)}, invalid("")}, // an index key of the wrong type
		{"SET sort = :v", attrs{":v": str("")}, invalid("")},
	} {
		w.must(w.put(sample()))
		out, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "1"),
			UpdateExpression: aws.String(c.expression), ExpressionAttributeValues: c.values, ReturnValues: types.ReturnValueAllNew})
		if want, refused := c.want.(invalid); refused {
			if code(err) != "ValidationException" || !strings.Contains(err.Error(), string(want)) {
				t.Errorf("%s: got %v, want ValidationException with %q", c.expression, err, want)
			}
			if got := dumpAll(w.get("1")); got != dumpAll(sample()) {
				t.Errorf("%s: refused, but it left %s", c.expression, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		if got := dumpAll(out.Attributes, "PK", "SK"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.expression, got, c.want)
		}
	}
}

func TestReturnValues(t *testing.T) {
	w := newWorld(t)
	for want, values := range map[string]types.ReturnValue{
		"{}": types.ReturnValueNone, "{n=1}": types.ReturnValueUpdatedOld, "{n=2 x=3}": types.ReturnValueUpdatedNew,
		"{PK=p SK=1 n=1 o=1}": types.ReturnValueAllOld, "{PK=p SK=1 n=2 o=1 x=3}": types.ReturnValueAllNew,
	} {
		w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "n": num(1), "o": num(1)}))
		out, err := w.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: w.table, Key: key("p", "1"), ReturnValues: values,
			UpdateExpression: aws.String("SET n = :n, x = :x"), ExpressionAttributeValues: attrs{":n": num(2), ":x": num(3)}})
		w.must(err)
		if got := dumpAll(out.Attributes); got != want {
			t.Errorf("%s: got %s, want %s", values, got, want)
		}
	}
	put := &dynamodb.PutItemInput{TableName: w.table, Item: key("p", "1"), ReturnValues: types.ReturnValueAllOld}
	out, err := w.client.PutItem(t.Context(), put)
	w.must(err)
	if got := dumpAll(out.Attributes); got != "{PK=p SK=1 n=2 o=1 x=3}" {
		t.Errorf("put: %s", got)
	}
	put.ReturnValues = types.ReturnValueAllNew
	_, err = w.client.PutItem(t.Context(), put)
	w.wantCode(err, "ValidationException", "")
	deleted, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: w.table, Key: key("p", "1"), ReturnValues: types.ReturnValueAllOld})
	w.must(err)
	if got := dumpAll(deleted.Attributes); got != "{PK=p SK=1}" {
		t.Errorf("delete: %s", got)
	}
}

func TestFailedConditionReturnsTheItemIfAsked(t *testing.T) {
	w := newWorld(t)
	w.must(w.put(sample()))
	for _, ask := range []types.ReturnValuesOnConditionCheckFailure{"", "NONE", "ALL_OLD"} {
		_, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: w.table, Item: key("p", "1"),
			ConditionExpression: aws.String("attribute_not_exists(PK)"), ReturnValuesOnConditionCheckFailure: ask})
		var failed *types.ConditionalCheckFailedException
		if !asError(err, &failed) {
			t.Fatalf("%s: %v", ask, err)
		}
		want := "{}"
		if ask == "ALL_OLD" {
			want = dumpAll(sample())
		}
		if got := dumpAll(failed.Item); got != want {
			t.Errorf("%s: got %s, want %s", ask, got, want)
		}
	}
}

func TestValuesComeBackExactly(t *testing.T) {
	w := newWorld(t)
	it := attrs{
		"PK": str("p"), "SK": str("odd \x00 \" \\ \u2028 日本 \U0001F600"), "empty": str(""), "control": str("\x01\x1f\n\t"),
		"bytes": &types.AttributeValueMemberB{Value: []byte{0, 1, 254, 255}}, "none": &types.AttributeValueMemberB{Value: []byte{}},
		"null": &types.AttributeValueMemberNULL{Value: true}, "no": &types.AttributeValueMemberBOOL{Value: false},
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{}}, "map": &types.AttributeValueMemberM{Value: attrs{}},
		"ns": &types.AttributeValueMemberNS{Value: []string{"1", "2.5", "-3"}}, "bs": &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
	}
	for i, n := range []string{"0", "9007199254740993", "12345678901234567890123456789012345678", "0.00000000001", "-1.5"} {
		it[fmt.Sprintf("n%d", i)] = num(n)
	}
	w.must(w.put(it))
	if got := dumpAll(w.get(text(it["SK"]))); got != dumpAll(it) {
		t.Errorf("got  %s\nwant %s", got, dumpAll(it))
	}
}

func TestNumbersAreNormalised(t *testing.T) {
	w := newWorld(t)
	for in, want := range map[string]string{
		"1.0": "1", "007": "7", "+5": "5", "-0": "0", "1e3": "1000", "1.50E-2": "0.015", "0.0": "0", "12300": "12300", ".5": "0.5",
	} {
		w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "n": num(in)}))
		if got := text(w.get("1")["n"]); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	for _, bad := range []string{"", "x", "1e", "1e126", "1e-131", "1234567890123456789012345678901234567.89", "0x10", "1_000", "Infinity"} {
		w.wantCode(w.put(attrs{"PK": str("p"), "SK": str("1"), "n": num(bad)}), "ValidationException", "")
	}
	for _, edge := range []string{"9.9999999999999999999999999999999999999e125", "1e-130"} {
		w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "n": num(edge)}))
	}
}

func TestInvalidValues(t *testing.T) {
	w := newWorld(t)
	deep := str("x")
	for range 31 {
		deep = &types.AttributeValueMemberL{Value: []types.AttributeValue{deep}}
	}
	w.must(w.put(attrs{"PK": str("p"), "SK": str("1"), "v": deep}))
	deep = &types.AttributeValueMemberL{Value: []types.AttributeValue{deep}}
	for name, v := range map[string]types.AttributeValue{
		"empty set": &types.AttributeValueMemberSS{Value: []string{}}, "twice in a set": &types.AttributeValueMemberSS{Value: []string{"a", "a"}},
		"twice as numbers": &types.AttributeValueMemberNS{Value: []string{"1", "1.0"}}, "null false": &types.AttributeValueMemberNULL{}, "too deep": deep,
	} {
		if err := w.put(attrs{"PK": str("p"), "SK": str("1"), "v": v}); code(err) != "ValidationException" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
