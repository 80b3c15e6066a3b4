package expr_test

import (
	"fmt"
	"strings"
	"testing"

	"gobridge/internal/expr"
	"gobridge/messaging"
)

// What a message brings may make an expression that is harmless with others
// take all memory or time there is.
func TestWhatAnExpressionMayMakeOfAMessage(t *testing.T) {
	const n = 4_000
	payload := fmt.Sprintf(`{"text":%q,"list":[%s"z"],"format":"%s"}`,
		strings.Repeat("a", n), strings.Repeat(`"q",`, n), strings.Repeat("%s", 3000))
	message := &messaging.Envelope{Payload: []byte(payload)}
	for source, want := range map[string]string{
		`payload.text.replace("a", payload.text) == ""`:                          "replace makes a string of 16000000 bytes",
		`payload.text.replace("a", payload.text, 2000) == ""`:                    "replace makes a string of",
		`payload.text.replace("", payload.text) == ""`:                           "replace makes a string of",
		`payload.list.join(payload.text) == ""`:                                  "join makes a string of",
		`payload.list.map(x, payload.text).join() == ""`:                         "join makes a string of",
		`payload.list.map(x, payload.text.replace("a", "bb")).size() == 0`:       "too much work",
		`payload.list.map(x, payload.text.lowerAscii()).size() == 0`:             "too much work",
		`payload.list.map(x, payload.text.reverse()).size() == 0`:                "too much work",
		`payload.list.map(x, payload.text.substring(1)).size() == 0`:             "too much work",
		`payload.list.map(x, payload.text.split("")).size() == 0`:                "too much work",
		`payload.list.map(x, payload.list.join("")).size() == 0`:                 "too much work",
		`payload.list.map(x, "%s".format([payload.text])).size() == 0`:           "too much work",
		`payload.format.format(payload.list.map(x, payload.text)) == ""`:         "too much work",
		`payload.list.all(a, payload.list.all(b, payload.list.all(c, c != "")))`: "too much work",
	} {
		filter, err := expr.Filter(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if _, err := filter(message); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
	// Without anything of a message it may fail as early as when it is compiled.
	filter, err := expr.Filter(`"a"` + strings.Repeat(`.replace("a", "aaaaaaaaaa")`, 12) + ` == ""`)
	if err == nil {
		_, err = filter(message)
	}
	if err == nil {
		t.Error("a string of 10^12 bytes was made")
	}
}

func TestReplaceAndJoin(t *testing.T) {
	message := &messaging.Envelope{Payload: []byte(`{"list":["a","b","c"],"odd":["a",1],"text":"aXbXc"}`)}
	for source, want := range map[string]string{
		`payload.text.replace("X", "--")`:                    "a--b--c",
		`payload.text.replace("X", "--", 1)`:                 "a--bXc",
		`payload.text.replace("X", "--", 0)`:                 "aXbXc",
		`payload.text.replace("X", "--", -1)`:                "a--b--c",
		`payload.text.replace("X", "", 9223372036854775807)`: "abc",
		`"é".replace("", "-")`:                               "-é-",
		`payload.list.join()`:                                "abc",
		`payload.list.join("/")`:                             "a/b/c",
		`payload.text.split("X").join("/")`:                  "a/b/c",
	} {
		key, err := expr.Key(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := key(message); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want)
		}
	}
	key, err := expr.Key(`payload.odd.join("/")`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := key(message); err == nil {
		t.Errorf("a list with a number was joined to %q", got)
	}
}
