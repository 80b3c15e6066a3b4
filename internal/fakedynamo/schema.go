package fakedynamo

import "strconv"

// Limits of keys and items in bytes (developer guide, "Quotas").
const (
	maxHashKey = 2048
	maxSortKey = 1024
	maxItem    = 400 << 10
)

// keyAttribute is one attribute of a key; without a name there is none.
type keyAttribute struct {
	name string
	kind kind
	max  int
}

type keySchema struct {
	hash keyAttribute
	sort keyAttribute
}

// check refuses a key value of the wrong type, empty, or too long. mismatch is
// the message for the wrong type.
func (k keyAttribute) check(v *value, mismatch string) error {
	switch {
	case v.kind != k.kind:
		return validation("One or more parameter values were invalid: %s", mismatch)
	case k.kind != kindNumber && v.text == "":
		return validation("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty %s value. Key: %s", setNames[k.kind+"S"], k.name)
	case len(v.text) > k.max && k.max == maxHashKey:
		return validation("One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes")
	case len(v.text) > k.max:
		return validation("One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes")
	}
	return nil
}

func (s keySchema) attributes() []keyAttribute {
	if s.sort.name == "" {
		return []keyAttribute{s.hash}
	}
	return []keyAttribute{s.hash, s.sort}
}

func (s keySchema) has(name string) bool {
	return name != "" && (name == s.hash.name || name == s.sort.name)
}

// itemKey identifies an item of the table: the sortable hash key, with its length
// before it so that no two keys meet, then the sortable sort key.
func (s keySchema) itemKey(it item) string {
	hash := it[s.hash.name].sortable()
	key := strconv.Itoa(len(hash)) + ":" + hash
	if s.sort.name != "" {
		key += it[s.sort.name].sortable()
	}
	return key
}

// checkItem refuses an item without a valid key.
func (s keySchema) checkItem(it item) error {
	for _, k := range s.attributes() {
		v, ok := it[k.name]
		if !ok {
			return validation("One or more parameter values were invalid: Missing the key %s in the item", k.name)
		}
		if err := k.check(v, "Type mismatch for key "+k.name+" expected: "+string(k.kind)+" actual: "+string(v.kind)); err != nil {
			return err
		}
	}
	return nil
}

// checkKey refuses a key that has not exactly the attributes of the schema.
func (s keySchema) checkKey(key item) error {
	attributes := s.attributes()
	if len(key) != len(attributes) {
		return validation("The provided key element does not match the schema")
	}
	for _, k := range attributes {
		v, ok := key[k.name]
		if !ok || v.kind != k.kind {
			return validation("The provided key element does not match the schema")
		}
		if err := k.check(v, ""); err != nil {
			return err
		}
	}
	return nil
}

func (s keySchema) keyOf(it item) item {
	key := item{}
	for _, k := range s.attributes() {
		key[k.name] = it[k.name]
	}
	return key
}

// record is an item as stored: immutable, with its size and identity.
type record struct {
	item item
	key  string
	size int
}

func (s keySchema) record(it item) *record {
	return &record{item: it, key: s.itemKey(it), size: it.size()}
}

func (r *record) itemOrNil() item {
	if r == nil {
		return nil
	}
	return r.item
}

func (r *record) sizeOrZero() int {
	if r == nil {
		return 0
	}
	return r.size
}
