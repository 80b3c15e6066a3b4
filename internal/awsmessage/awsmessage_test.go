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
