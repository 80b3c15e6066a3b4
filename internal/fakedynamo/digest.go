package fakedynamo

import (
	"hash/maphash"
	"strconv"
)

// The digest of a request is the same for the same parameters in whatever order
// maps were written; two requests under one token must agree in it.

var digestSeed = maphash.MakeSeed()

func hashText(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	for _, p := range parts {
		_, _ = h.WriteString(strconv.Itoa(len(p))) // a hash's Write never fails
		_ = h.WriteByte(':')
		_, _ = h.WriteString(p)
	}
	return h.Sum64()
}

// mix makes the order of hashes count.
func mix(sum, next uint64) uint64 { return sum*0x9E3779B97F4A7C15 + next }

func (v *value) digest() uint64 {
	sum := hashText(string(v.kind), v.text, strconv.FormatBool(v.truth))
	for _, element := range v.list {
		sum = mix(sum, element.digest())
	}
	for _, member := range v.set {
		sum = mix(sum, hashText(member))
	}
	if v.fields != nil {
		sum = mix(sum, v.fields.digest())
	}
	return sum
}

func (it item) digest() uint64 {
	sum := uint64(len(it))
	for name, v := range it {
		sum += mix(hashText(name), v.digest())
	}
	return sum
}

func (in *writeInput) digest() uint64 {
	sum := hashText(in.TableName, optional(in.ConditionExpression), optional(in.UpdateExpression), in.ReturnValuesOnConditionCheckFailure)
	names := uint64(0)
	for name, stands := range in.ExpressionAttributeNames {
		names += hashText(name, stands)
	}
	for _, part := range []uint64{names, in.Item.digest(), in.Key.digest(), in.ExpressionAttributeValues.digest()} {
		sum = mix(sum, part)
	}
	return sum
}

func optional(s *string) string {
	if s == nil {
		return ""
	}
	return "=" + *s
}

func (r *transactWriteItems) digest() uint64 {
	sum := uint64(0)
	for _, t := range r.TransactItems {
		kind, in, _ := t.only() // resolve has seen that there is one
		sum = mix(mix(sum, uint64(kind)), in.digest())
	}
	return sum
}
