package fakedynamo

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// maxDepth is how many levels an attribute may have, its innermost value included.
const maxDepth = 32

// UnmarshalJSON reads a map of attribute values. It has a reader of its own
// because items are most of every request; encoding/json has checked the syntax.
func (it *item) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	r := wireReader{data: data}
	fields, err := r.fields(0)
	if err != nil {
		return err
	}
	*it = fields
	return nil
}

// MarshalJSON writes a map of attribute values.
func (it item) MarshalJSON() ([]byte, error) {
	return appendFields(make([]byte, 0, 64+it.size()*5/4), it), nil
}

type wireReader struct {
	data []byte
	at   int
}

func (r *wireReader) space() byte {
	for r.at < len(r.data) {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
	return 0
}

// take steps over c if it comes next.
func (r *wireReader) take(c byte) bool {
	if r.space() == c {
		r.at++
		return true
	}
	return false
}

func (r *wireReader) string() (string, error) {
	if !r.take('"') {
		return "", serialization("a string was expected")
	}
	start := r.at
	end := bytes.IndexByte(r.data[start:], '"')
	escaped := end >= 0 && bytes.IndexByte(r.data[start:start+end], '\\') >= 0
	for end, r.at = start+end, start; escaped && r.at < len(r.data) && r.data[r.at] != '"'; r.at++ {
		if r.data[r.at] == '\\' {
			r.at++
		}
	}
	if escaped {
		end = r.at
	}
	if end < start || end >= len(r.data) {
		return "", serialization("a string does not end")
	}
	raw := r.data[start:end]
	r.at = end + 1
	if !utf8.Valid(raw) {
		return "", serialization("a string is not valid UTF-8")
	}
	if !escaped {
		return string(raw), nil
	}
	var s string
	if err := json.Unmarshal(r.data[start-1:r.at], &s); err != nil {
		return "", serialization(err.Error())
	}
	return s, nil
}

func (r *wireReader) bool() (bool, error) {
	r.space()
	rest := r.data[r.at:]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		r.at += 4
		return true, nil
	case len(rest) >= 5 && string(rest[:5]) == "false":
		r.at += 5
		return false, nil
	}
	return false, serialization("true or false was expected")
}

func (r *wireReader) fields(depth int) (item, error) {
	if !r.take('{') {
		return nil, serialization("a map of attribute values was expected")
	}
	out := item{}
	if r.take('}') {
		return out, nil
	}
	for {
		name, err := r.string()
		if err != nil {
			return nil, err
		}
		if !r.take(':') {
			return nil, serialization("a colon was expected")
		}
		v, err := r.value(depth)
		if err != nil {
			return nil, err
		}
		out[name] = v
		if r.take('}') {
			return out, nil
		}
		if !r.take(',') {
			return nil, serialization("a comma was expected")
		}
	}
}

func (r *wireReader) value(depth int) (*value, error) {
	if depth >= maxDepth {
		return nil, validation("Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit")
	}
	if !r.take('{') {
		return nil, serialization("an attribute value was expected")
	}
	if r.take('}') {
		return nil, validation("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
	}
	descriptor, err := r.string()
	if err != nil {
		return nil, err
	}
	if !r.take(':') {
		return nil, serialization("a colon was expected")
	}
	v, err := r.payload(kind(descriptor), depth)
	if err != nil {
		return nil, err
	}
	if !r.take('}') {
		return nil, validation("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes")
	}
	return v, nil
}

func (r *wireReader) payload(k kind, depth int) (*value, error) {
	switch k {
	case kindString, kindNumber, kindBinary:
		text, err := r.member(k)
		return &value{kind: k, text: text}, err
	case kindBool:
		truth, err := r.bool()
		return &value{kind: k, truth: truth}, err
	case kindNull:
		truth, err := r.bool()
		if err == nil && !truth {
			err = validation("One or more parameter values were invalid: Null attribute value types must have the value of true")
		}
		return &value{kind: k, truth: true}, err
	case kindMap:
		fields, err := r.fields(depth + 1)
		return &value{kind: k, fields: fields}, err
	case kindList:
		list := []*value{}
		err := r.array(func() error {
			v, err := r.value(depth + 1)
			list = append(list, v)
			return err
		})
		return &value{kind: k, list: list}, err
	case kindStringSet, kindNumberSet, kindBinarySet:
		var members []string
		err := r.array(func() error {
			text, err := r.member(k[:1])
			members = append(members, text)
			return err
		})
		if err != nil {
			return nil, err
		}
		return newSet(k, members)
	}
	return nil, validation("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
}

func (r *wireReader) array(element func() error) error {
	if !r.take('[') {
		return serialization("an array was expected")
	}
	if r.take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if r.take(']') {
			return nil
		}
		if !r.take(',') {
			return serialization("a comma was expected")
		}
	}
}

// member reads the text of a scalar: bytes of S and B, canonical form of N.
func (r *wireReader) member(k kind) (string, error) {
	text, err := r.string()
	if err != nil {
		return "", err
	}
	switch k {
	case kindNumber:
		return canonicalNumber(text)
	case kindBinary:
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "", serialization("B is not base64: " + err.Error())
		}
		return string(raw), nil
	}
	return text, nil
}

func appendFields(out []byte, fields item) []byte {
	out = append(out, '{')
	first := true
	for name, v := range fields {
		if !first {
			out = append(out, ',')
		}
		first = false
		out = appendText(out, name)
		out = append(out, ':')
		out = appendValue(out, v)
	}
	return append(out, '}')
}

func appendValue(out []byte, v *value) []byte {
	out = append(out, '{', '"')
	out = append(out, v.kind...)
	out = append(out, '"', ':')
	switch v.kind {
	case kindBool, kindNull:
		if v.truth {
			out = append(out, "true"...)
		} else {
			out = append(out, "false"...)
		}
	case kindMap:
		out = appendFields(out, v.fields)
	case kindList:
		out = append(out, '[')
		for i, element := range v.list {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, element)
		}
		out = append(out, ']')
	case kindStringSet, kindNumberSet, kindBinarySet:
		out = append(out, '[')
		for i, member := range v.set {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendMember(out, v.kind[:1], member)
		}
		out = append(out, ']')
	default:
		out = appendMember(out, v.kind, v.text)
	}
	return append(out, '}')
}

func appendMember(out []byte, k kind, text string) []byte {
	if k != kindBinary {
		return appendText(out, text)
	}
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, []byte(text))
	return append(out, '"')
}

const hexDigits = "0123456789abcdef"

// appendText writes a JSON string, unescaped stretches in one go.
func appendText(out []byte, text string) []byte {
	out = append(slices.Grow(out, len(text)+2), '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out = append(out, text[from:i]...)
		from = i + 1
		if c < 0x20 {
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		} else {
			out = append(out, '\\', c)
		}
	}
	return append(append(out, text[from:]...), '"')
}
