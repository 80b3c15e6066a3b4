package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gobridge/operate"
)

// visible writes text so that all of it is seen and none of it changes how the text
// around it reads: what is no UTF-8, control characters, marks of direction and
// other invisible ones as escapes. Line breaks and tabs are escapes, too.
func visible(text string) string {
	if plain(text) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case hidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.WriteString(text[i : i+size])
		}
		i += size
	}
	return out.String()
}

func plain(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0
}

// hidden reports whether a rune is seen as nothing, or as something else.
func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// maxShort is how much of a text stands in a list, in characters.
const maxShort = 120

// short is the beginning of a text, made visible.
func short(text string) string {
	const most = 4 * maxShort // bytes of as many characters at most
	cut := len(text) > most
	if cut {
		text = strings.ToValidUTF8(text[:most], "")
	}
	runes := []rune(visible(text))
	if len(runes) > maxShort {
		runes, cut = runes[:maxShort], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}

// thousands writes a number in groups of three digits.
func thousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// number is thousands for templates, which know no type parameters.
func number(n any) string {
	if i, ok := n.(int); ok {
		return thousands(i)
	}
	i, _ := n.(int64)
	return thousands(i)
}

// bytesText writes a number of bytes.
func bytesText[N int | int64](n N) string {
	switch f := float64(n); {
	case n == 1:
		return "1 byte"
	case n < 1<<10:
		return thousands(n) + " bytes"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", f/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MB", f/(1<<20))
	default:
		return fmt.Sprintf("%.1f GB", f/(1<<30))
	}
}

// rateText writes how many a second.
func rateText(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0/s"
	case perSecond < 0.1:
		return "under 0.1/s"
	case perSecond < 10:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return thousands(int64(perSecond+0.5)) + "/s"
}

// stamp writes a time, in the server's zone, with how long it is from now.
func stamp(now, t time.Time) template.HTML {
	if t.IsZero() {
		return "never"
	}
	local, layout := t.Local(), "2006-01-02 15:04:05"
	if y, m, d := now.Local().Date(); local.Year() == y && local.Month() == m && local.Day() == d {
		layout = "15:04:05"
	}
	how := operate.Span(now.Sub(t)) + " ago"
	if t.After(now) {
		how = "in " + operate.Span(t.Sub(now))
	}
	// A time has no characters that HTML minds.
	return template.HTML(fmt.Sprintf(`<span class="stamp"><time datetime="%s">%s</time> <span class="muted">(%s)</span></span>`, //nolint:gosec // see above
		local.Format(time.RFC3339), local.Format(layout), how))
}

// count is a number with the word for what it counts; several is the word for any
// number but one, the word with an s when empty.
func count[N int | int64](n N, word, several string) string {
	switch {
	case n == 1:
		return "1 " + word
	case several == "":
		several = word + "s"
	}
	return thousands(n) + " " + several
}

// commandLine writes a command for a shell.
func commandLine(args []string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = quote(arg)
	}
	return strings.Join(out, " ")
}

// quote writes an argument so that a shell reads it back. What is not seen is
// written in the shell's own escapes.
func quote(arg string) string {
	const safe = "-_./:@=,+"
	bare := arg != "" && strings.IndexFunc(arg, func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(safe, r)
	}) < 0
	switch {
	case bare:
		return arg
	case plain(arg):
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	var out strings.Builder
	out.WriteString("$'")
	for _, b := range []byte(arg) {
		switch {
		case b == '\'' || b == '\\':
			out.WriteByte('\\')
			out.WriteByte(b)
		case b >= ' ' && b < 0x7f:
			out.WriteByte(b)
		default:
			fmt.Fprintf(&out, `\x%02x`, b)
		}
	}
	return out.String() + "'"
}
