package mapping

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gobridge/messaging"
)

// maxNesting is a depth of JSON that the standard library's parser surely takes
// with an event around it; its own limit is 10,000.
const maxNesting = 9000

// structure writes an event as JSON (JSON event format 1.0.2): the attributes,
// and the envelope's content type and payload as datacontenttype and data. Only
// the content type can be wrong.
func structure(attributes Attributes, e *messaging.Envelope) ([]byte, error) {
	if err := declarable(e.ContentType); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(e.Payload)*4/3 + 512)
	out.WriteByte('{')
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		member(&out, name)
		writeString(&out, attributes[name])
	}
	if e.ContentType != "" {
		member(&out, "datacontenttype")
		writeString(&out, e.ContentType)
	}
	switch {
	case len(e.Payload) == 0:
	case subtypeJSON(e.ContentType) && bareJSON(e.Payload):
		member(&out, "data")
		out.Write(e.Payload)
	default:
		member(&out, "data_base64")
		out.WriteByte('"')
		encoder := base64.NewEncoder(base64.StdEncoding, &out)
		_, _ = encoder.Write(e.Payload) // a buffer takes everything
		_ = encoder.Close()
		out.WriteByte('"')
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// declarable returns why a content type can't be a datacontenttype.
func declarable(contentType string) error {
	if contentType != "" && (!text(contentType) || !isMediaType(contentType)) {
		return wrong("the content type", "is %s, which no CloudEvent can have: it is no media type, like application/json or text/plain; charset=utf-8", shown(contentType))
	}
	return nil
}

func member(out *bytes.Buffer, name string) {
	if out.Len() > 1 {
		out.WriteByte(',')
	}
	out.WriteByte('"')
	out.WriteString(name) // letters and digits
	out.WriteString(`":`)
}

// writeString writes s, which is valid UTF-8 without control characters.
func writeString(out *bytes.Buffer, s string) {
	out.WriteByte('"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			out.WriteByte('\\')
		}
		out.WriteByte(s[i])
	}
	out.WriteByte('"')
}

// bareJSON reports whether data is JSON that comes out of an event as it went in.
func bareJSON(data []byte) bool {
	first, last := data[0], data[len(data)-1]
	return strings.IndexByte(space, first) < 0 && strings.IndexByte(space, last) < 0 &&
		bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < maxNesting &&
		utf8.Valid(data) && json.Valid(data)
}

// Unstructure reads an event in JSON (JSON event format 1.0.2): its attributes,
// which are not checked yet, and its payload, a part of body where data is JSON.
// Numbers and booleans among the attributes become text (type system, section
// 3.1.2 of CloudEvents 1.0.2), and an attribute that is null is none. Without a
// datacontenttype, data is application/json, and the attribute says so.
func Unstructure(body []byte) (Attributes, []byte, error) {
	if !utf8.Valid(body) {
		return nil, nil, wrong("the event", "is not valid UTF-8")
	}
	members, err := readObject(body)
	if err != nil {
		return nil, nil, err
	}
	attributes := make(Attributes, len(members))
	for name, raw := range members {
		if name == "data" || name == "data_base64" {
			continue
		}
		value, there, err := attributeValue(name, raw)
		if err != nil {
			return nil, nil, err
		}
		if there {
			attributes[name] = value
		}
	}
	payload, err := eventData(members, attributes)
	return attributes, payload, err
}

// readObject returns the members of a JSON object, each as it stands in body.
func readObject(body []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(body) {
		var nothing json.RawMessage
		return nil, wrong("the event", "is no JSON: %v", json.Unmarshal(body, &nothing))
	}
	at := skipSpace(body, 0)
	if body[at] != '{' {
		return nil, wrong("the event", "is no JSON object")
	}
	members := make(map[string]json.RawMessage, 8)
	for at = skipSpace(body, at+1); body[at] != '}'; at = skipSpace(body, at) {
		if body[at] == ',' {
			at = skipSpace(body, at+1)
		}
		end := skipValue(body, at)
		name := unquote(body[at:end])
		at = skipSpace(body, skipSpace(body, end)+1) // over the colon
		end = skipValue(body, at)
		if _, twice := members[name]; twice {
			return nil, wrong(shownName(name), "is there more than once in the event")
		}
		members[name] = body[at:end:end]
		at = end
	}
	return members, nil
}

// skipSpace returns where the next token of JSON begins.
func skipSpace(data []byte, at int) int {
	for strings.IndexByte(space, data[at]) >= 0 {
		at++
	}
	return at
}

// skipValue returns where the value of valid JSON ends that begins at at.
func skipValue(data []byte, at int) int {
	depth := 0
	for ; at < len(data); at++ {
		switch c := data[at]; {
		case c == '"':
			for at++; data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return at + 1
			}
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']' || strings.IndexByte(space, c) >= 0): // behind a number or a word
			return at
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return at
}

const space = " \t\r\n"

// unquote returns the text that a valid JSON string stands for.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text
}

// attributeValue returns an attribute as text, and false if it is null.
func attributeValue(name string, raw json.RawMessage) (string, bool, error) {
	switch raw[0] {
	case 'n':
		return "", false, nil
	case '"':
		return unquote(raw), true, nil
	case 't', 'f':
		return string(raw), true, nil
	case '{', '[':
		return "", false, wrong(shownName(name), "is an object or an array; an attribute is a text, a whole number or a boolean")
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		return "", false, wrong(shownName(name), "is %s; a number among the attributes is a whole one of 32 bits", shown(string(raw)))
	}
	return strconv.FormatInt(n, 10), true, nil
}

// eventData returns the payload (JSON event format, section 3.1).
func eventData(members map[string]json.RawMessage, attributes Attributes) ([]byte, error) {
	data, isData := members["data"]
	encoded, isEncoded := members["data_base64"]
	isEncoded = isEncoded && string(encoded) != "null"
	switch {
	case isData && isEncoded:
		return nil, wrong("data_base64", "is there beside data; an event has one of them")
	case isEncoded:
		if encoded[0] != '"' {
			return nil, wrong("data_base64", "is no text")
		}
		payload, err := base64.StdEncoding.Strict().DecodeString(unquote(encoded))
		if err != nil {
			return nil, wrong("data_base64", "is not base64: %v", err)
		}
		return payload, nil
	case !isData:
		return nil, nil
	}
	media, there := attributes["datacontenttype"]
	if !there {
		attributes["datacontenttype"] = impliedType
		return data, nil
	}
	if data[0] == '"' && !subtypeJSON(media) {
		return []byte(unquote(data)), nil
	}
	return data, nil
}

// subtypeJSON reports whether a content type declares JSON as the format of
// events has it: the subtype is json or ends in +json, whatever the type.
func subtypeJSON(contentType string) bool {
	_, subtype, _ := strings.Cut(mediaType(contentType), "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}
