// Package percent writes any bytes as visible ASCII, and reads them back. It is
// the escaping of attribute values in the HTTP binding of CloudEvents 1.0.2
// (section 3.1.3.2), which gobridge uses for the values of its own HTTP headers
// too.
package percent

import (
	"fmt"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// Encode writes '%', '"', the bytes outside 0x21 to 0x7E and those in also as
// %XX. No two strings have the same encoding.
func Encode(s, also string) string {
	n := 0
	for i := range len(s) {
		if escaped(s[i], also) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		c := s[i]
		if escaped(c, also) {
			out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

func escaped(c byte, also string) bool {
	return c <= ' ' || c > '~' || c == '%' || c == '"' || strings.IndexByte(also, c) >= 0
}

// Decode replaces every %XX by its byte and leaves the rest alone. A '%' that
// two hexadecimal digits do not follow is an error.
func Decode(s string) (string, error) {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return s, nil
	}
	out := append(make([]byte, 0, len(s)), s[:at]...)
	for i := at; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
			return "", fmt.Errorf("'%%' at position %d is not followed by two hexadecimal digits; a literal '%%' is written %%25", i+1)
		}
		out = append(out, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
		i += 2
	}
	return string(out), nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
