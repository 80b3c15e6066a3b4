package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"gobridge"
	"gobridge/internal/expr"
	"gobridge/messaging"
)

// scalar is a value that is written as one string.
type scalar interface {
	// parse reads the value; its error says what the value is, or is not,
	// without repeating it.
	parse(text string) error
	kind() kind
}

// hider is a scalar that shows itself to others. If something was put into it,
// it shows what stands in the file instead.
type hider interface{ hide(shown string) }

// kind describes a type of scalar.
type kind struct {
	Name    string
	Doc     string // one sentence on how it is written
	Pattern string // what a schema can check of it
	Hint    string // what to write instead of a wrong one
	Integer bool   // may be written as a plain integer too
	Secret  bool   // must not be shown

	onlyInteger bool
	boolean     bool // written as true or false
	mayBeEmpty  bool
}

// The kinds of values that need no type of their own.
var (
	stringKind  = kind{Name: "string", Hint: "put it in quotes"}
	integerKind = kind{Name: "integer", Integer: true, onlyInteger: true, Hint: "write it in decimal digits, without quotes"}
)

// article returns the name with its article.
func (k kind) article() string {
	if strings.ContainsRune("aeiou", rune(k.Name[0])) {
		return "an " + k.Name
	}
	return "a " + k.Name
}

// Switch is something that is so or not.
type Switch bool

func (s *Switch) parse(text string) error {
	switch text {
	case "true":
		*s = true
	case "false":
		*s = false
	default:
		return errors.New("is neither true nor false")
	}
	return nil
}

func (Switch) kind() kind {
	return kind{Name: "boolean", Doc: "true or false.", Pattern: `^(true|false)$`, Hint: "write true or false", boolean: true}
}

// Duration is a length of time.
type Duration time.Duration

// units of durations, in descending order.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond},
}

func (d *Duration) parse(text string) error {
	var total time.Duration
	rest := text
	for rest != "" {
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if digits <= 0 {
			return errors.New("is not a duration")
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		rest = rest[digits:]
		letters := strings.IndexFunc(rest, func(r rune) bool { return r < 'a' || r > 'z' })
		if letters < 0 {
			letters = len(rest)
		}
		unit := unitSize(rest[:letters])
		if unit == 0 {
			return errors.New("is not a duration")
		}
		rest = rest[letters:]
		if err != nil || n > int64(math.MaxInt64-total)/int64(unit) {
			return errors.New("is too long a duration")
		}
		total += time.Duration(n) * unit
	}
	if total <= 0 {
		return errors.New("is not above zero")
	}
	*d = Duration(total)
	return nil
}

func unitSize(name string) time.Duration {
	for _, u := range units {
		if u.name == name {
			return u.size
		}
	}
	return 0
}

// String returns the duration as it would stand in the file.
func (d Duration) String() string {
	var b strings.Builder
	rest := int64(d)
	for _, u := range units {
		if n := rest / int64(u.size); n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			rest %= int64(u.size)
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

func (Duration) kind() kind {
	return kind{
		Name:    "duration",
		Doc:     "Numbers with units: ms, s, m, h and d, as in 500ms, 20s, 1h30m or 7d.",
		Pattern: `^([0-9]+(ms|s|m|h|d))+$`,
		Hint:    "write numbers with units, like 20s, 1h30m or 7d",
	}
}

// Size is a number of bytes.
type Size int64

func (s *Size) parse(text string) error {
	number, unit := text, int64(1)
	for suffix, size := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || strings.HasPrefix(number, "+") || len(number) > 1 && number[0] == '0':
		return errors.New("is not a size")
	case n <= 0:
		return errors.New("is not above zero")
	case n > math.MaxInt64/unit:
		return errors.New("is too large a size")
	}
	*s = Size(n * unit)
	return nil
}

func (Size) kind() kind {
	return kind{
		Name:    "size",
		Doc:     "Bytes: a number, or one with KiB, MiB or GiB behind it, as in 256KiB.",
		Pattern: `^[0-9]+(KiB|MiB|GiB)?$`,
		Hint:    "write bytes, like 65536, 256KiB or 1MiB",
		Integer: true,
	}
}

// Rate is a number per second.
type Rate float64

func (r *Rate) parse(text string) error {
	number, unit, ok := strings.Cut(text, "/")
	seconds := unitSize(unit).Seconds()
	n, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !ok || err != nil || unit != "s" && unit != "m" && unit != "h":
		return errors.New("is not a rate")
	case n == 0:
		return errors.New("is not above zero")
	}
	*r = Rate(float64(n) / seconds)
	return nil
}

func (Rate) kind() kind {
	return kind{
		Name:    "rate",
		Doc:     "A number per second, minute or hour, as in 20/s, 100/m or 1000/h.",
		Pattern: `^[0-9]+/[smh]$`,
		Hint:    "write a number per second, minute or hour, like 20/s, 100/m or 1000/h",
	}
}

// Backoff is a range of waits.
type Backoff struct{ Min, Max time.Duration }

func (b *Backoff) parse(text string) error {
	low, high, ok := strings.Cut(text, "..")
	var from, to Duration
	if !ok || from.parse(low) != nil || to.parse(high) != nil {
		return errors.New("is not a range of durations")
	}
	if from > to {
		return errors.New("begins above its end")
	}
	*b = Backoff{Min: time.Duration(from), Max: time.Duration(to)}
	return nil
}

func (Backoff) kind() kind {
	return kind{
		Name:    "range of durations",
		Doc:     "Two durations with two dots between, as in 1s..1h.",
		Pattern: `^([0-9]+(ms|s|m|h|d))+\.\.([0-9]+(ms|s|m|h|d))+$`,
		Hint:    "write the shortest and the longest wait, like 1s..1h",
	}
}

// Address is a host and a port.
type Address string

func (a *Address) parse(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return errors.New("is not an address")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("has no port from 0 to 65535")
	}
	*a = Address(text)
	return nil
}

// Loopback reports whether only this machine can reach the address.
func (a Address) Loopback() bool {
	host, _, _ := net.SplitHostPort(string(a))
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a Address) port() string {
	_, port, _ := net.SplitHostPort(string(a))
	return port
}

// meets reports whether two listeners would be in each other's way: they have the same
// port, and the same host or one has every interface.
func (a Address) meets(b Address) bool {
	hosts := make([]string, 2)
	for i, one := range []Address{a, b} {
		hosts[i], _, _ = net.SplitHostPort(string(one))
		if ip := net.ParseIP(hosts[i]); hosts[i] == "" || ip != nil && ip.IsUnspecified() {
			return a.port() == b.port() && a.port() != "0"
		}
		if hosts[i] == "localhost" {
			hosts[i] = "127.0.0.1"
		}
	}
	return a.port() == b.port() && a.port() != "0" && hosts[0] == hosts[1]
}

func (Address) kind() kind {
	return kind{
		Name:    "address",
		Doc:     "A host and a port, as in 127.0.0.1:8080, [::1]:8080 or :8080 for every interface.",
		Pattern: `:[0-9]+$`,
		Hint:    "write host:port, like 127.0.0.1:8080",
	}
}

// Path is the path of an HTTP source.
type Path string

func (p *Path) parse(text string) error {
	if !strings.HasPrefix(text, "/") {
		return errors.New("does not start with a slash")
	}
	for _, c := range text {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && !strings.ContainsRune("-._~/", c) {
			return errors.New("has a character that a path cannot have")
		}
	}
	if path.Clean(text) != text {
		return errors.New("is not a clean path")
	}
	*p = Path(text)
	return nil
}

func (Path) kind() kind {
	return kind{
		Name:    "path",
		Doc:     "A slash, and letters, digits, '-', '_', '.', '~' and further slashes; none at the end.",
		Pattern: `^/[A-Za-z0-9._~/-]*$`,
		Hint:    "write a path of letters, digits and -._~ between slashes, like /orders or /v1/orders",
	}
}

// URL is the address of a webhook. As parts of it may be secret, only
// [Secret.Reveal] shows all of it.
type URL struct {
	Secret
	Host string
	// Shown is what to call it where it may be seen. Empty when that is the URL
	// without user, password and query: nothing was put into it.
	Shown string
}

func (u *URL) hide(string) {
	scheme, _, _ := strings.Cut(u.Reveal(), ":")
	u.Shown = scheme + "://" + u.Host + "/..."
}

func (u *URL) parse(text string) error {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "":
		return errors.New("is not an http or https URL")
	case parsed.Port() != "" && !isPort(parsed.Port()):
		return errors.New("has a port that is not from 1 to 65535")
	case parsed.Fragment != "":
		return errors.New("has a fragment, which is never sent")
	}
	*u = URL{Secret: NewSecret(text), Host: parsed.Host}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func (URL) kind() kind {
	return kind{
		Name:    "URL",
		Doc:     "An http or https URL. A user and password in it become basic authentication.",
		Pattern: `^https?://`,
		Hint:    "write a URL like https://example.com/hook",
		Secret:  true, // its path or its query may be one
	}
}

// HeaderName is the name of a header.
type HeaderName string

func (h *HeaderName) parse(text string) error {
	for _, c := range text {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) {
			return errors.New("is not a header name")
		}
	}
	*h = HeaderName(strings.ToLower(text))
	return nil
}

func (HeaderName) kind() kind {
	return kind{
		Name:    "header name",
		Doc:     "The name of an HTTP header, in any case.",
		Pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
		Hint:    "write the name of a header, like x-tenant",
	}
}

// RouteOrBinding names a route, or a binding as route/binding.
type RouteOrBinding string

func (p *RouteOrBinding) parse(text string) error {
	route, binding, ok := strings.Cut(text, "/")
	if err := gobridge.CheckName(route); err != nil {
		return errors.New("is not a route or route/binding")
	}
	if err := gobridge.CheckName(binding); ok && err != nil {
		return errors.New("is not a route or route/binding")
	}
	*p = RouteOrBinding(text)
	return nil
}

func (RouteOrBinding) kind() kind {
	return kind{
		Name:    "route or binding",
		Doc:     "The name of a route, as in orders, or of one of its bindings, as in orders/crm.",
		Pattern: `^` + namePattern + `(/` + namePattern + `)?$`,
		Hint:    "write the name of a route, like orders, or of a binding, like orders/crm",
	}
}

// ConnectionName names a connection.
type ConnectionName string

func (n *ConnectionName) parse(text string) error {
	if err := gobridge.CheckName(text); err != nil {
		return errors.New("is not the name of a connection")
	}
	*n = ConnectionName(text)
	return nil
}

func (ConnectionName) kind() kind {
	return kind{
		Name:    "connection",
		Doc:     "The name of a connection, as it stands under connections.",
		Pattern: `^` + namePattern + `$`,
		Hint:    "write a name that stands under connections",
	}
}

// namePattern is what [gobridge.CheckName] takes.
const namePattern = `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`

// KeyExpr is a compiled expression that gives an ordering key.
type KeyExpr struct {
	Source string
	Eval   func(*messaging.Envelope) (string, error)
}

func (k *KeyExpr) parse(text string) (err error) {
	k.Source = text
	k.Eval, err = expr.Key(text)
	return err
}

func (k *KeyExpr) hide(shown string) {
	eval := k.Eval
	k.Source = shown
	k.Eval = func(e *messaging.Envelope) (string, error) {
		key, err := eval(e)
		return key, hidden(shown, err)
	}
}

// hidden is an error of an expression into which something was put.
func hidden(shown string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("expression `%s` fails on this message; why is left out, for it would show what was put in", shown)
}

// MarshalText returns the source.
func (k KeyExpr) MarshalText() ([]byte, error) { return []byte(k.Source), nil }

func (KeyExpr) kind() kind {
	return kind{
		Name: "key expression",
		Doc:  "A CEL expression that gives a string (see Expressions).",
		Hint: `an expression like payload.customer_id or subject.split("/")[1]`,
	}
}

// TextExpr is a compiled expression that gives a text.
type TextExpr struct {
	Source string
	Eval   func(*messaging.Envelope) (string, error)
}

func (t *TextExpr) parse(text string) (err error) {
	t.Source = text
	t.Eval, err = expr.Text(text)
	return err
}

func (t *TextExpr) hide(shown string) {
	eval := t.Eval
	t.Source = shown
	t.Eval = func(e *messaging.Envelope) (string, error) {
		text, err := eval(e)
		return text, hidden(shown, err)
	}
}

// MarshalText returns the source.
func (t TextExpr) MarshalText() ([]byte, error) { return []byte(t.Source), nil }

func (TextExpr) kind() kind {
	return kind{
		Name: "text expression",
		Doc:  "A CEL expression that gives a string (see Expressions).",
		Hint: `an expression like "orders-" + payload.country; a fixed text is written "in quotes" within the expression`,
	}
}

// FilterExpr is a compiled expression that takes or leaves a message.
type FilterExpr struct {
	Source string
	Eval   func(*messaging.Envelope) (bool, error)
}

func (f *FilterExpr) parse(text string) (err error) {
	f.Source = text
	f.Eval, err = expr.Filter(text)
	return err
}

func (f *FilterExpr) hide(shown string) {
	eval := f.Eval
	f.Source = shown
	f.Eval = func(e *messaging.Envelope) (bool, error) {
		take, err := eval(e)
		return take, hidden(shown, err)
	}
}

// MarshalText returns the source.
func (f FilterExpr) MarshalText() ([]byte, error) { return []byte(f.Source), nil }

func (FilterExpr) kind() kind {
	return kind{
		Name: "filter expression",
		Doc:  "A CEL expression that gives true or false (see Expressions).",
		Hint: "an expression like payload.temp > 90.0",
	}
}
