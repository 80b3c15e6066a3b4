package fakedynamo

import (
	"slices"
	"strings"
)

// kind is a data type of the wire format; its text is the descriptor.
type kind string

const (
	kindString    kind = "S"
	kindNumber    kind = "N"
	kindBinary    kind = "B"
	kindBool      kind = "BOOL"
	kindNull      kind = "NULL"
	kindList      kind = "L"
	kindMap       kind = "M"
	kindStringSet kind = "SS"
	kindNumberSet kind = "NS"
	kindBinarySet kind = "BS"
)

// value is an attribute value. Values are immutable once stored: updates build
// new ones, so that readers need no lock.
type value struct {
	kind   kind
	text   string // S and B by their bytes, N canonical
	truth  bool
	list   []*value
	fields item
	set    []string // sorted; members by their bytes, numbers canonical
}

// item is a map of attributes.
type item map[string]*value

func numberValue(n string) *value { return &value{kind: kindNumber, text: n} }

func (v *value) isSet() bool {
	return v.kind == kindStringSet || v.kind == kindNumberSet || v.kind == kindBinarySet
}

// size is what the value counts for in the item's size (developer guide, "Item
// sizes and formats").
func (v *value) size() int {
	switch v.kind {
	case kindString, kindBinary:
		return len(v.text)
	case kindNumber:
		return numberSize(v.text)
	case kindList:
		total := 3 + len(v.list)
		for _, element := range v.list {
			total += element.size()
		}
		return total
	case kindMap:
		return 3 + len(v.fields) + v.fields.size()
	case kindNumberSet:
		total := 0
		for _, member := range v.set {
			total += numberSize(member)
		}
		return total
	case kindStringSet, kindBinarySet:
		total := 0
		for _, member := range v.set {
			total += len(member)
		}
		return total
	default:
		return 1
	}
}

// size is the sum of names and values.
func (it item) size() int {
	total := 0
	for name, v := range it {
		total += len(name) + v.size()
	}
	return total
}

func (v *value) equal(o *value) bool {
	if v == o {
		return true
	}
	if v.kind != o.kind {
		return false
	}
	switch v.kind {
	case kindBool, kindNull:
		return v.truth == o.truth
	case kindList:
		return slices.EqualFunc(v.list, o.list, (*value).equal)
	case kindMap:
		return v.fields.equal(o.fields)
	case kindStringSet, kindNumberSet, kindBinarySet:
		return slices.Equal(v.set, o.set)
	default:
		return v.text == o.text
	}
}

func (it item) equal(o item) bool {
	if len(it) != len(o) {
		return false
	}
	for name, v := range it {
		if other, ok := o[name]; !ok || !v.equal(other) {
			return false
		}
	}
	return true
}

// compare orders two values of one scalar type; other pairs have no order.
func (v *value) compare(o *value) (order int, comparable bool) {
	if v.kind != o.kind {
		return 0, false
	}
	switch v.kind {
	case kindString, kindBinary:
		return strings.Compare(v.text, o.text), true
	case kindNumber:
		return compareNumbers(v.text, o.text), true
	default:
		return 0, false
	}
}

// sortable is a byte string that sorts as the key value does.
func (v *value) sortable() string {
	if v.kind == kindNumber {
		return mustDecimal(v.text).sortable()
	}
	return v.text
}

func (it item) clone() item {
	out := make(item, len(it)+2)
	for name, v := range it {
		out[name] = v
	}
	return out
}

// newSet sorts the members and refuses an empty set and duplicates.
func newSet(k kind, members []string) (*value, error) {
	if len(members) == 0 {
		return nil, validation("One or more parameter values were invalid: An %s set may not be empty", setNames[k])
	}
	compare := strings.Compare
	if k == kindNumberSet {
		compare = compareNumbers
	}
	slices.SortFunc(members, compare)
	for i := 1; i < len(members); i++ {
		if members[i] == members[i-1] {
			return nil, validation("One or more parameter values were invalid: Input collection [%s] contains duplicates.", strings.Join(members, ", "))
		}
	}
	return &value{kind: k, set: members}, nil
}

var setNames = map[kind]string{kindStringSet: "string", kindNumberSet: "number", kindBinarySet: "binary"}
