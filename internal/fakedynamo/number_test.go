package fakedynamo

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func rat(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return r
}

// TestNumbersAgainstRationals compares sums, order and sortable form with exact
// arithmetic.
func TestNumbersAgainstRationals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	draw := func() string {
		text := fmt.Sprint(random.IntN(2000)-1000, strings.Repeat(fmt.Sprint(random.IntN(10)), random.IntN(12)))
		if random.IntN(2) == 0 {
			text += "." + fmt.Sprint(random.IntN(100000))
		}
		if random.IntN(3) == 0 {
			text += fmt.Sprint("e", random.IntN(21)-10)
		}
		canonical, err := canonicalNumber(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return canonical
	}
	for range 5_000 {
		a, b := draw(), draw()
		x, y := rat(t, a), rat(t, b)
		if got := compareNumbers(a, b); got != x.Cmp(y) {
			t.Fatalf("compare %s and %s: %d", a, b, got)
		}
		if got := strings.Compare(mustDecimal(a).sortable(), mustDecimal(b).sortable()); got != x.Cmp(y) {
			t.Fatalf("sortable forms of %s and %s: %d", a, b, got)
		}
		for _, subtract := range []bool{false, true} {
			want := new(big.Rat).Add(x, y)
			if subtract {
				want.Sub(x, y)
			}
			got, err := addNumbers(a, b, subtract)
			if err != nil {
				if digits := len(strings.Trim(strings.Replace(want.FloatString(60), ".", "", 1), "-0")); digits <= maxDigits {
					t.Fatalf("%s and %s, subtract %v: %v", a, b, subtract, err)
				}
				continue
			}
			if rat(t, got).Cmp(want) != 0 {
				t.Fatalf("%s and %s, subtract %v: %s", a, b, subtract, got)
			}
		}
	}
}

func TestNumberSize(t *testing.T) {
	for text, want := range map[string]int{"0": 1, "1": 2, "12": 2, "123": 3, "1234": 3, "100": 2, "1010": 3, "0.0000001": 2, "1E125": 2, "1E-100": 2,
		"1.5": 3, "15": 2, "1.234": 4, "3.14159": 5, "-1": 3, "-1.5": 4, "12345678901234567890123456789012345678": 20} {
		canonical, err := canonicalNumber(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := numberSize(canonical); got != want {
			t.Errorf("%s takes %d bytes, want %d", text, got, want)
		}
	}
}

// TestOrderedAgainstSlice compares the chunked list with a plain one.
func TestOrderedAgainstSlice(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	var list ordered[int]
	model := map[place]int{}
	for range 6_000 {
		p := place{fmt.Sprint(random.IntN(400)), fmt.Sprint(random.IntN(3))}
		if random.IntN(3) == 0 {
			list.remove(p)
			delete(model, p)
		} else {
			n := random.Int()
			list.set(p, n)
			model[p] = n
		}
	}
	var want []place
	for p := range model {
		want = append(want, p)
	}
	slices.SortFunc(want, place.compare)
	if list.count != len(want) {
		t.Errorf("count %d, want %d", list.count, len(want))
	}
	for from := range len(want) + 1 {
		start := place{"~", ""}
		if from < len(want) {
			start = want[from]
		}
		var up, down []place
		list.ascend(start, func(p place, n int) bool {
			up = append(up, p)
			if model[p] != n {
				t.Fatalf("%v holds %d, want %d", p, n, model[p])
			}
			return true
		})
		list.descend(&start, func(p place, _ int) bool { down = append(down, p); return true })
		slices.Reverse(down)
		if !slices.Equal(up, want[from:]) || !slices.Equal(down, want[:from]) {
			t.Fatalf("from %v: %d up, %d down; want %d and %d", start, len(up), len(down), len(want)-from, from)
		}
	}
}

// FuzzExpression parses whatever comes and evaluates what parses: no panic.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{"a = :v AND NOT (b.c[0] < :v OR size(d) IN (:v, #n))", "begins_with(a, :v)", "a BETWEEN :v AND :v",
		"SET a = if_not_exists(a, :v) + :v, b[1] = list_append(:v, c) REMOVE d.e ADD f :v DELETE g :v", "a, b.c, d[3]", "((a = :v))", "a.", "#", ":"} {
		f.Add(seed)
	}
	it := item{"a": numberValue("1"), "b": {kind: kindList, list: []*value{numberValue("2")}}, "d": {kind: kindMap, fields: item{"e": numberValue("3")}}}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range []role{roleCondition, roleUpdate, roleProjection, roleKeyCondition} {
			x, err := parseExpression(r, text)
			if err != nil {
				continue
			}
			names, values := map[string]string{}, item{}
			for _, name := range x.names {
				names[name] = "a"
			}
			for _, name := range x.values {
				values[name] = numberValue("1")
			}
			e, refused := bind(names, values, x)
			if len(names) == 0 || len(values) == 0 || refused != nil {
				e = &env{names: names, values: values}
			}
			switch {
			case x.update != nil && x.check(e) == nil:
				_, _ = x.update.apply(e, it)
			case x.condition != nil:
				x.condition.eval(e, it)
				_, _ = x.keyRange(e, keySchema{hash: keyAttribute{"a", kindNumber, maxHashKey}})
			case x.projection != nil && x.projectable() == nil && x.check(e) == nil:
				x.project(e, it)
			}
		}
	})
}

// FuzzItem reads and writes items: what is read once is written and read alike.
func FuzzItem(f *testing.F) {
	for _, seed := range []string{`{"a":{"S":"x\u0000"},"b":{"N":"-1.50e3"},"c":{"B":"AP8="}}`, `{"l":{"L":[{"BOOL":true},{"NULL":true}]},"m":{"M":{"x":{"SS":["a","b"]}}}}`,
		`{"n":{"NS":["1","2.0"]},"b":{"BS":["AA=="]}}`, `{"a":{}}`, `{"a":{"S":"1","N":"1"}}`, `{"a":{"L":[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var it, again item
		if it.UnmarshalJSON(data) != nil {
			return
		}
		text, err := it.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalJSON(text); err != nil {
			t.Fatalf("%s was read, %s was not: %v", data, text, err)
		}
		if !it.equal(again) || it.size() != again.size() || it.digest() != again.digest() {
			t.Fatalf("%s became %s", data, text)
		}
	})
}
