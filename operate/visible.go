package operate

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible writes text so that all of it is seen and none of it changes how the text
// around it reads, or what a terminal does: what is no UTF-8, control characters,
// marks of direction and other invisible ones as escapes. Line breaks and tabs are
// escapes, too.
func Visible(text string) string {
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

// plain reports whether Visible has nothing to do.
func plain(text string) bool { return utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 }

// hidden reports whether a rune is seen as nothing, or as something else. Some that
// count as printable are blank: fillers, selectors of a variant, an empty braille cell.
func hidden(r rune) bool {
	return r != ' ' && !unicode.IsPrint(r) || r == '\u2800' ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// CommandLine writes a command to be copied into a shell, which reads it back byte
// for byte. It is [Visible] as it stands. An argument with a NUL can't be given to
// any program: a comment says so then, for what a shell makes of one is another
// argument, and the command might be about somebody else's message.
func CommandLine(args []string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		if strings.Contains(arg, "\x00") {
			return "# no shell can give " + Visible(strconv.Quote(arg)) + " to a program, for it has a NUL; the console and the admin API can act on it"
		}
		out[i] = quote(arg)
	}
	return strings.Join(out, " ")
}

// quote writes an argument for a shell. What is not seen is written in the shell's
// own escapes, $'...', which POSIX has since 2024 and bash, zsh, ksh and the shell of
// BusyBox long before. A byte is three octal digits, for how many hexadecimal ones
// belong to it is not the same everywhere. So is a quote: to a shell that knows no such
// escapes, as dash, the string must not end there, and what a key has be a command.
func quote(arg string) string {
	const safe = "-_./:@=,+%"
	bare := arg != "" && arg[0] != '=' && strings.IndexFunc(arg, func(r rune) bool {
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
		case b >= ' ' && b < 0x7f && b != '\'' && b != '\\':
			out.WriteByte(b)
		default:
			fmt.Fprintf(&out, `\%03o`, b)
		}
	}
	return out.String() + "'"
}

// Thousands writes a number in groups of three digits.
func Thousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
