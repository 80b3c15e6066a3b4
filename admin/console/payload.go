package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gobridge"
	"gobridge/admin"
	"gobridge/operate"
)

// Bounds of a preview, in bytes of the payload.
const (
	maxText = 64 << 10
	maxHex  = 4 << 10
	// maxJSON is the largest payload that is printed prettily.
	maxJSON = 256 << 10
	// maxHeaders bounds the headers that are shown.
	maxHeaders = 100
)

// payload is the preview of one.
type payload struct {
	Size string
	// Withheld says which role may see it, when the caller's may not.
	Withheld string
	// Gone says that the record has none any more.
	Gone  bool
	As    string // text, json or hex
	Views []tab
	Body  string
	// Cut says how much is shown, if not all.
	Cut string
}

// tab is a way to look at a payload.
type tab struct {
	Name, Href string
	Current    bool
}

// payloadOf prepares a preview as the caller wishes, or as it suits the bytes best.
func payloadOf(r *gobridge.Record, as, here string, may bool, role admin.Role) payload {
	data := r.Envelope.Payload
	out := payload{Size: bytesText(len(data))}
	switch {
	case len(data) == 0:
		out.Gone = r.State.Ended() && r.State != gobridge.StateDead
		return out
	case !may:
		out.Withheld = role.String()
		return out
	}
	pretty, isJSON := prettyJSON(data)
	ways := []string{"text", "hex"}
	if isJSON {
		ways = []string{"json", "text", "hex"}
	}
	if !slices.Contains(ways, as) {
		as = ways[0]
		if as == "text" && bytes.IndexByte(data[:min(len(data), maxHex)], 0) >= 0 {
			as = "hex"
		}
	}
	out.As = as
	for _, way := range ways {
		out.Views = append(out.Views, tab{way, here + "&as=" + way, way == as})
	}
	switch as {
	case "json":
		out.Body, out.Cut = lines(pretty, maxText)
	case "hex":
		out.Body = hex.Dump(data[:min(len(data), maxHex)])
		if len(data) > maxHex {
			out.Cut = bytesText(maxHex)
		}
	default:
		out.Body, out.Cut = lines(data, maxText)
	}
	return out
}

// maxDepth is how deep JSON is nested that is printed prettily: the indentation of
// every line grows with it.
const maxDepth = 50

// prettyJSON prints JSON with a line for each value, and reports whether it is JSON
// at all. What is nested too deep stays as it is.
func prettyJSON(data []byte) ([]byte, bool) {
	if len(data) > maxJSON || !json.Valid(data) {
		return nil, false
	}
	var out bytes.Buffer
	if nesting(data) > maxDepth || json.Indent(&out, data, "", "  ") != nil {
		return data, true
	}
	return out.Bytes(), true
}

// nesting is how deep valid JSON is nested.
func nesting(data []byte) int {
	depth, most := 0, 0
	text, escaped := false, false
	for _, b := range data {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped, text = b == '\\', b != '"'
		case b == '"':
			text = true
		case b == '{', b == '[':
			depth++
			most = max(most, depth)
		case b == '}', b == ']':
			depth--
		}
	}
	return most
}

// lines makes text visible line by line, most bytes of it, and says how much that is
// if it is not all.
func lines(data []byte, most int) (text, cut string) {
	if len(data) > most {
		data, cut = data[:most], bytesText(most)
	}
	var out strings.Builder
	for i, line := range strings.Split(string(data), "\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		for j, part := range strings.Split(strings.TrimSuffix(line, "\r"), "\t") {
			if j > 0 {
				out.WriteByte('\t')
			}
			out.WriteString(operate.Visible(part))
		}
	}
	return out.String(), cut
}

// headersOf are the headers of a message, in the order of their names.
func headersOf(r *gobridge.Record) []figure {
	var out []figure
	for _, name := range slices.Sorted(maps.Keys(r.Envelope.Headers)) {
		if len(out) == maxHeaders {
			return append(out, figure{"…", fmt.Sprintf("and %d more", len(r.Envelope.Headers)-maxHeaders)})
		}
		out = append(out, figure{short(name), short(r.Envelope.Headers[name])})
	}
	return out
}
