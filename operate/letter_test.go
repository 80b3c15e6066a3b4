package operate_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/messaging"
	"gobridge/operate"
)

// odd has every byte that text formats stumble over.
var odd = func() string {
	var b strings.Builder
	for c := range 256 {
		b.WriteByte(byte(c))
	}
	return b.String() + "\u2028<&>\ufffd{\"base64\":\"\"}"
}()

func letterOf(id string) gobridge.Record {
	e := messaging.Envelope{
		ID: id + odd, OrderingKey: "k\x00" + odd, Subject: odd, ContentType: "text/plain; é",
		Headers: messaging.Headers{odd: odd, "empty": "", "\xff": "\x00"}, Payload: []byte(odd),
		CreatedAt: time.Unix(1, 2).UTC(), NotBefore: time.Unix(3, 4).UTC(), ExpiresAt: time.Unix(1<<33, 5).UTC(),
	}
	return gobridge.Record{
		Partition: "orders/crm/0", Binding: "crm", Envelope: e, ContentHash: messaging.ContentHash(&e),
		State: gobridge.StateDead, Reason: "exhausted", Error: odd, Redrives: 2,
	}
}

func TestLetterKeepsEveryByte(t *testing.T) {
	for _, payload := range [][]byte{[]byte(odd), {}, []byte("{}"), bytes.Repeat([]byte{0xff}, 1000)} {
		want := letterOf("a")
		want.Envelope.Payload = payload
		line, err := operate.EncodeLetter(&want)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(line, "\n\r") {
			t.Fatalf("more than a line: %s", line)
		}
		got, err := operate.DecodeLetter(line)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestLetterRefusesWhatIsNone(t *testing.T) {
	for _, line := range []string{
		"", "{", "null", "[]", "{}", `{"gobridge_dead_letter":2}`, `{"gobridge_dead_letter":1}`,
		`{"gobridge_dead_letter":1,"id":{"base64":"?"}}`, `{"gobridge_dead_letter":1,"id":{}}`,
	} {
		if r, err := operate.DecodeLetter([]byte(line)); err == nil {
			t.Errorf("%q is read as %+v", line, r)
		}
	}
}

func FuzzDecodeLetter(f *testing.F) {
	r := gobridge.Record{Partition: "r/b/0", Binding: "b", Error: "\xff", Redrives: 1}
	r.Envelope = messaging.Envelope{ID: "i", OrderingKey: "\x00", Headers: messaging.Headers{"h": "\xfe"}, Payload: []byte("{}")}
	line, err := operate.EncodeLetter(&r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Fuzz(func(t *testing.T, line []byte) {
		first, err := operate.DecodeLetter(line)
		if err != nil {
			return
		}
		again, err := operate.EncodeLetter(&first)
		if err != nil {
			t.Skip("a time that JSON cannot write")
		}
		second, err := operate.DecodeLetter(again)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%v: %+v became %+v", err, first, second)
		}
	})
}
