package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"gobridge/operate"
)

// maxShort is how much of a text stands in a list, in characters.
const maxShort = 120

// short is the beginning of a text, made visible.
func short(text string) string {
	const most = 4 * maxShort // bytes of as many characters at most
	cut := len(text) > most
	if cut {
		text = strings.ToValidUTF8(text[:most], "")
	}
	runes := []rune(operate.Visible(text))
	if len(runes) > maxShort {
		runes, cut = runes[:maxShort], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}

// number is operate.Thousands for templates, which know no type parameters.
func number(n any) string {
	if i, ok := n.(int); ok {
		return operate.Thousands(i)
	}
	i, _ := n.(int64)
	return operate.Thousands(i)
}

// bytesText writes a number of bytes.
func bytesText[N int | int64](n N) string {
	switch f := float64(n); {
	case n == 1:
		return "1 byte"
	case n < 1<<10:
		return operate.Thousands(n) + " bytes"
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
	return operate.Thousands(int64(perSecond+0.5)) + "/s"
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
	return operate.Thousands(n) + " " + several
}
