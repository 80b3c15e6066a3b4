package fakedynamo

import (
	"math/big"
	"strconv"
	"strings"
)

// Limits of a DynamoDB number: 38 significant digits, magnitudes from 1E-130 to
// 9.99…E+125 (API reference, "Data types: Number").
const (
	maxDigits   = 38
	maxExponent = 126  // of 0.d × 10^e
	minExponent = -129 // of 0.d × 10^e
)

// decimal is 0.digits × 10^exponent, digits without leading or trailing zeros;
// zero has no digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// canonicalNumber is the text DynamoDB answers with: no exponent, no leading or
// trailing zeros. Equal numbers have equal text.
func canonicalNumber(text string) (string, error) {
	if plainInteger(text) {
		return text, nil
	}
	d, err := parseDecimal(text)
	if err != nil {
		return "", err
	}
	return d.text(), nil
}

// plainInteger reports whether text is already canonical and fits an int64.
func plainInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(digits) > 18 || digits[0] == '0' && text != "0" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

func parseDecimal(text string) (decimal, error) {
	bad := func() (decimal, error) {
		return decimal{}, validation("The parameter cannot be converted to a numeric value: %s", text)
	}
	rest := text
	var d decimal
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		d.negative = rest[0] == '-'
		rest = rest[1:]
	}
	exponent := 0
	if at := strings.IndexAny(rest, "eE"); at >= 0 {
		n, err := strconv.Atoi(rest[at+1:])
		if err != nil || n > 10000 || n < -10000 {
			return bad()
		}
		exponent, rest = n, rest[:at]
	}
	whole, fraction, _ := strings.Cut(rest, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return bad()
	}
	trimmed := strings.TrimLeft(digits, "0")
	d.exponent = exponent + len(whole) - (len(digits) - len(trimmed))
	d.digits = strings.TrimRight(trimmed, "0")
	return d.checked()
}

// checked refuses what DynamoDB cannot store.
func (d decimal) checked() (decimal, error) {
	switch {
	case d.digits == "":
		return decimal{}, nil
	case len(d.digits) > maxDigits:
		return decimal{}, validation("Attempting to store more than 38 significant digits in a Number")
	case d.exponent > maxExponent:
		return decimal{}, validation("Number overflow. Attempting to store a number with magnitude larger than supported range")
	case d.exponent < minExponent:
		return decimal{}, validation("Number underflow. Attempting to store a number with magnitude smaller than supported range")
	}
	return d, nil
}

func (d decimal) text() string {
	if d.digits == "" {
		return "0"
	}
	var b strings.Builder
	if d.negative {
		b.WriteByte('-')
	}
	switch {
	case d.exponent <= 0:
		b.WriteString("0.")
		b.WriteString(strings.Repeat("0", -d.exponent))
		b.WriteString(d.digits)
	case d.exponent >= len(d.digits):
		b.WriteString(d.digits)
		b.WriteString(strings.Repeat("0", d.exponent-len(d.digits)))
	default:
		b.WriteString(d.digits[:d.exponent])
		b.WriteByte('.')
		b.WriteString(d.digits[d.exponent:])
	}
	return b.String()
}

// mustDecimal reads text that canonicalNumber has made.
func mustDecimal(text string) decimal {
	d, _ := parseDecimal(text)
	return d
}

func compareNumbers(a, b string) int {
	if a == b {
		return 0
	}
	if plainInteger(a) && plainInteger(b) {
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		if x < y {
			return -1
		}
		return 1
	}
	return strings.Compare(mustDecimal(a).sortable(), mustDecimal(b).sortable())
}

// addNumbers is a+b, or a-b, exactly; more than 38 digits are refused.
func addNumbers(a, b string, subtract bool) (string, error) {
	if plainInteger(a) && plainInteger(b) {
		x, _ := strconv.ParseInt(a, 10, 64)
		y, _ := strconv.ParseInt(b, 10, 64)
		if subtract {
			y = -y
		}
		return strconv.FormatInt(x+y, 10), nil
	}
	x, y := mustDecimal(a), mustDecimal(b)
	if subtract {
		y.negative = !y.negative
	}
	scale := min(x.exponent-len(x.digits), y.exponent-len(y.digits))
	sum := new(big.Int).Add(x.scaled(scale), y.scaled(scale))
	d := decimal{negative: sum.Sign() < 0}
	digits := new(big.Int).Abs(sum).String()
	if sum.Sign() != 0 {
		d.digits = strings.TrimRight(digits, "0")
		d.exponent = len(digits) + scale
	}
	d, err := d.checked()
	if err != nil {
		return "", err
	}
	return d.text(), nil
}

// scaled is the number as a whole multiple of 10^scale.
func (d decimal) scaled(scale int) *big.Int {
	n := new(big.Int)
	if d.digits == "" {
		return n
	}
	n.SetString(d.digits, 10)
	shift := d.exponent - len(d.digits) - scale
	n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), nil))
	if d.negative {
		n.Neg(n)
	}
	return n
}

// sortable is a byte string that sorts as the number does.
func (d decimal) sortable() string {
	if d.digits == "" {
		return "\x01"
	}
	e := uint16(d.exponent + 0x4000)
	out := make([]byte, 0, len(d.digits)+4)
	if !d.negative {
		out = append(out, 2, byte(e>>8), byte(e))
		return string(append(out, d.digits...))
	}
	out = append(out, 0, ^byte(e>>8), ^byte(e))
	for i := range len(d.digits) {
		out = append(out, ^d.digits[i])
	}
	return string(append(out, 0xff))
}

// numberSize is a byte, one for each begun pair of significant digits before the
// point and of those behind it, and one for a sign; zero takes one. The developer
// guide's shorter rule ("1 byte per two significant digits plus 1 byte") is an
// estimate; this is what item size limits have been measured to follow.
func numberSize(text string) int {
	if text == "0" {
		return 1
	}
	d := decimal{negative: text[0] == '-'}
	if plainInteger(text) {
		digits := strings.TrimPrefix(text, "-")
		d.digits, d.exponent = strings.TrimRight(digits, "0"), len(digits)
	} else {
		d = mustDecimal(text)
	}
	whole := min(max(d.exponent, 0), len(d.digits))
	size := 1 + (whole+1)/2 + (len(d.digits)-whole+1)/2
	if d.negative {
		size++
	}
	return size
}
