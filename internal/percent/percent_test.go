package percent_test

import (
	"testing"

	"gobridge/internal/percent"
)

func TestEncode(t *testing.T) {
	for _, c := range []struct{ in, also, want string }{
		{"", "", ""},
		{"plant/7:a", "", "plant/7:a"},
		{"a.b", ".", "a%2Eb"},
		{"50% \"x\"", "", "50%25%20%22x%22"},
		{"Köln\x00\xff", "", "K%C3%B6ln%00%FF"},
	} {
		if got := percent.Encode(c.in, c.also); got != c.want {
			t.Errorf("Encode(%q, %q) = %q, want %q", c.in, c.also, got, c.want)
		}
	}
}

func TestDecodeRefusesWhatIsNoEncoding(t *testing.T) {
	for _, in := range []string{"%", "a%2", "%zz", "100% sure", "%%41"} {
		if got, err := percent.Decode(in); err == nil {
			t.Errorf("Decode(%q) = %q, want an error", in, got)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("a.b", ".")
	f.Add("K\xc3\xb6ln %41\x00", "&=+")
	f.Fuzz(func(t *testing.T, in, also string) {
		encoded := percent.Encode(in, also)
		for i := range len(encoded) {
			if encoded[i] <= ' ' || encoded[i] > '~' {
				t.Fatalf("Encode(%q) = %q has a byte that is not visible ASCII", in, encoded)
			}
		}
		if got, err := percent.Decode(encoded); err != nil || got != in {
			// Escaping the escape's own characters can't be undone: no caller does.
			for i := range len(also) {
				if c := also[i]; c == '%' || '0' <= c && c <= '9' || 'A' <= c && c <= 'F' {
					return
				}
			}
			t.Fatalf("Decode(Encode(%q)) = %q, %v", in, got, err)
		}
		_, _ = percent.Decode(in) // must not panic
	})
}
