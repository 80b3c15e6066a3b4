package awsmessage_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"gobridge"
	"gobridge/internal/awsmessage"
	"gobridge/internal/mapping"
	"gobridge/messaging"
)

func TestBodies(t *testing.T) {
	for payload, want := range map[string]string{
		"":                      "-",
		"-":                     "-",
		"plain\t\r\n":           "plain\t\r\n",
		"ü \U0001F600 \uE000":   "ü \U0001F600 \uE000",
		"nul \x00":              "bnVsIAA=",
		"\xff":                  "/w==",
		"\uFFFE":                "77++",
		"\uFFFF":                "77+/",
		"\x7f \u0085 \ufffd ok": "\x7f \u0085 \ufffd ok",
		"\xed\xa0\x80":          "7aCA", // a surrogate
	} {
		e := awsmessage.Encoder{}
		m, err := e.Encode(&gobridge.Delivery{Envelope: messaging.Envelope{ID: "1", Payload: []byte(payload)}})
		if err != nil || m.Body != want {
			t.Errorf("%q became %q, %v, want %q", payload, m.Body, err, want)
		}
		back, known, err := awsmessage.Decode(m)
		if err != nil || !known || !bytes.Equal(back.Payload, []byte(payload)) || back.ID != "1" {
			t.Errorf("%q came back as %+v, %v", payload, back, err)
		}
	}
}

func TestTokens(t *testing.T) {
	long := strings.Repeat("x", 128)
	for _, fits := range []string{"a", long, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"} {
		if got := awsmessage.Token(fits); got != fits {
			t.Errorf("%q became %q, though it fits", fits, got)
		}
	}
	seen := map[string]string{}
	for _, text := range []string{"", " ", "ü", long + "x", "a\x00", "sha256-x", awsmessage.Token("ü")} {
		got := awsmessage.Token(text)
		if len(got) > 128 || !strings.HasPrefix(got, "sha256-") || got == text {
			t.Errorf("%q became %q", text, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %q", text, other, got)
		}
		seen[got] = text
	}
}

func TestNoDeliveryIsLargerThanTheLongest(t *testing.T) {
	e := messaging.Envelope{ID: strings.Repeat("i", 200), OrderingKey: "k", Payload: []byte("p")}
	d := gobridge.Delivery{
		Envelope: e, Route: strings.Repeat("r", 64), Binding: strings.Repeat("b", 64),
		Partition: gobridge.NewShard(strings.Repeat("r", 64), strings.Repeat("b", 64), 255, 256),
		Attempt:   1 << 30, Redrives: 1 << 30, Token: gobridge.Token{Version: 1 << 62}, Seq: 1 << 62,
	}
	encoder := awsmessage.Encoder{}
	longest := awsmessage.Longest(&e)
	most, err := encoder.Encode(&longest)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := encoder.Encode(&d); err != nil || m.Size() > most.Size() {
		t.Errorf("%d bytes, %v; the longest has %d", m.Size(), err, most.Size())
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("id", "key", "subject", "text/plain", "name", "value", []byte("payload"), 3)
	f.Add("i d", "\x00", "ü", "\xff", "gobridge", "", []byte{}, 12)
	f.Add("", "", "", "", "ce-specversion", "1.0", []byte("\x00"), 8)
	f.Fuzz(func(t *testing.T, id, key, subject, contentType, name, value string, payload []byte, headers int) {
		in := messaging.Envelope{ID: id, OrderingKey: key, Subject: subject, ContentType: contentType, Payload: payload, Headers: messaging.Headers{}}
		for i := range min(max(headers, 0), 40) {
			in.Headers[name+strings.Repeat("x", i)] = value
		}
		if id == "" || (gobridge.Limits{}).CheckEnvelope(&in) != nil {
			return // no route takes it
		}
		encoder := awsmessage.Encoder{Format: mapping.Plain}
		m, err := encoder.Encode(&gobridge.Delivery{Envelope: in, Route: "r", Binding: "b", Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Attributes) > 10 || m.Body == "" || !allowed(m.Body) {
			t.Fatalf("%q is no message of SQS", m)
		}
		for name, value := range m.Attributes {
			if name == "" || len(name) > 256 || value == "" || !allowed(value) {
				t.Fatalf("attribute %q: %q", name, value)
			}
		}
		out, known, err := awsmessage.Decode(m)
		if err != nil || !known {
			t.Fatalf("%q can't be read: %v", m, err)
		}
		if out.ID != id || out.OrderingKey != key || out.Subject != subject || out.ContentType != contentType ||
			!bytes.Equal(out.Payload, payload) || !maps.Equal(out.Headers, in.Headers) {
			t.Fatalf("%+v came back as %+v", in, out)
		}
	})
}

// allowed is the rule of the API reference, read once more.
func allowed(text string) bool {
	for _, r := range text {
		if r < 0x20 && r != 9 && r != 10 && r != 13 || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return utf8.ValidString(text)
}

// A message that came as an event has as many attributes as its producer liked. If
// they are more than fit, or are none that AWS takes, they come back all the same.
func TestEventsOfMoreThanFits(t *testing.T) {
	event := func(more ...string) messaging.Headers {
		h := messaging.Headers{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "tenant": "header"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	many := func(n int) (out []string) {
		for i := range n {
			out = append(out, "ce-ext"+strings.Repeat("x", i), "v")
		}
		return out
	}
	own := map[string]func(*messaging.Envelope) (string, error){
		"tenant": func(*messaging.Envelope) (string, error) { return "configured", nil },
	}
	for name, headers := range map[string]messaging.Headers{
		"few": event(), "full": event(many(2)...), "one more": event(many(3)...), "many": event(many(30)...),
		"a long name":        event("ce-"+strings.Repeat("x", 300), "v"),
		"a value":            event("ce-ext", "\uFFFE"),
		"other spelling":     event("CE-Ext", "v", "Ce-Specversion", "1.0"),
		"many and spelling":  event(append(many(30), "Ce-Specversion", "1.0")...),
		"no event, but many": {"ce-specversion": "2", "ce-a": "1", "ce-b": "1", "ce-c": "1", "ce-d": "1", "ce-e": "1", "ce-f": "1", "ce-g": "1"},
	} {
		for _, encoder := range []awsmessage.Encoder{{}, {Attributes: own}, {Format: mapping.Structured, Attributes: own}} {
			e := messaging.Envelope{ID: "id", Subject: "t", ContentType: "text/plain", Payload: []byte{0}, Headers: headers}
			m, err := encoder.Encode(&gobridge.Delivery{Envelope: e, Route: "r", Attempt: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Attributes) > awsmessage.MaxAttributes {
				t.Errorf("%s: %d attributes: %q", name, len(m.Attributes), m.Attributes)
			}
			for name, value := range m.Attributes {
				if len(name) > 256 || !allowed(value) {
					t.Errorf("%s: attribute %q: %q", name, name, value)
				}
			}
			back, _, err := awsmessage.Decode(m)
			want := maps.Clone(headers)
			if encoder.Attributes != nil {
				want["tenant"] = "configured"
			}
			if err != nil || back.ID != "id" || back.Subject != "t" || back.ContentType != "text/plain" || !maps.Equal(back.Headers, want) {
				t.Errorf("%s: came back as %+v, %v, want headers %q", name, back, err, want)
			}
		}
	}
}

// What a configuration asks for takes the place of the message's own, also where that
// is no attribute.
func TestAttributesOfTheConfigurationTakePrecedence(t *testing.T) {
	own := map[string]func(*messaging.Envelope) (string, error){
		"x-tenant": func(*messaging.Envelope) (string, error) { return "configured", nil },
	}
	for _, f := range []mapping.Format{mapping.Plain, mapping.Structured} {
		for _, value := range []string{"header", "\x00"} {
			encoder := awsmessage.Encoder{Format: f, Attributes: own}
			m, err := encoder.Encode(&gobridge.Delivery{Envelope: messaging.Envelope{ID: "id", Headers: messaging.Headers{"x-tenant": value}}})
			if err != nil {
				t.Fatal(err)
			}
			if back, _, err := awsmessage.Decode(m); err != nil || back.Headers["x-tenant"] != "configured" {
				t.Errorf("%s: came back as %+v, %v", f, back, err)
			}
		}
	}
}

func TestWhatIsNoRepetitionHasAnotherDedupeID(t *testing.T) {
	one := gobridge.Delivery{Envelope: messaging.Envelope{ID: "1", Payload: []byte("a")}, Route: "r", Binding: "b", Attempt: 1}
	again := one
	again.Attempt, again.Seq = 2, 9
	if a, b := awsmessage.DedupeID(&one), awsmessage.DedupeID(&again); a != b {
		t.Errorf("another attempt is %q, the first %q", b, a)
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*gobridge.Delivery){
		"itself":          func(*gobridge.Delivery) {},
		"another route":   func(d *gobridge.Delivery) { d.Route = "r2" },
		"another binding": func(d *gobridge.Delivery) { d.Binding = "b2" },
		"other content":   func(d *gobridge.Delivery) { d.Envelope.Payload = []byte("b") },
		"a redrive":       func(d *gobridge.Delivery) { d.Redrives = 1 },
		"an odd ID":       func(d *gobridge.Delivery) { d.Envelope.ID = "b/1" },
		"a long ID":       func(d *gobridge.Delivery) { d.Envelope.ID = strings.Repeat("1", 200) },
	} {
		d := one
		change(&d)
		id := awsmessage.DedupeID(&d)
		if other, twice := seen[id]; twice || len(id) > 128 {
			t.Errorf("%s has the deduplication ID of %s: %q", name, other, id)
		}
		seen[id] = name
	}
}
