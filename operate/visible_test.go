package operate_test

import (
	"os/exec"
	"strings"
	"testing"

	"gobridge/operate"
)

// hostile are texts that change what a terminal shows, or what a shell does.
var hostile = []string{
	"k\x1b[31m\x1b]0;pwn\a", "\u009b31m", "\x9b31m", "\u202egnp", "a\nb", "a\r\tb", "zero\u200bwidth", "nb\u00a0sp", "\ufeff", "\x7f", "\xff\xfe",
	"\u2066x\u2069", "\U000e0041", "\x1b'\\7", "1\x1b7", "$(id)\x1b`id`", "a\u2028b",
	"hangul\u3164filler", "\u115f", "\uffa0", "braille\u2800blank", "heart\ufe0f", "graph\u034feme",
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 日本 🎉": "plain ü 日本 🎉", "": "", "k\x1b[31m\x1b]0;pwn\a": `k\x1b[31m\x1b]0;pwn\a`, "a\x00b": `a\x00b`,
		"a\nb\tc\r": `a\nb\tc\r`, "\u202egnp": `\u202egnp`, "\xff\xfe": `\xff\xfe`, "\u009b1m": `\u009b1m`, "zero\u200bwidth": `zero\u200bwidth`,
		"nb\u00a0sp": `nb\u00a0sp`, "\ufeff": `\ufeff`,
	} {
		if got := operate.Visible(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range hostile {
		if got := operate.Visible(text); got == text || operate.Visible(got) != got {
			t.Errorf("%q is written %q", text, got)
		}
	}
}

// TestCommandLineMeansWhatItSays has a shell read what is shown.
func TestCommandLineMeansWhatItSays(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"cust-7", "it's", `back\slash`, "", "$(id)", "`id`", "a b", "*", "~", "ü", "50%", "!x"}, hostile...)
	line := operate.CommandLine(all)
	if operate.Visible(line) != line {
		t.Errorf("it is written %q", line)
	}
	out, err := exec.CommandContext(t.Context(), shell, "-c", `printf '%s\0' `+line).Output()
	if want := strings.Join(all, "\x00") + "\x00"; err != nil || string(out) != want {
		t.Errorf("%s\nis read as %q (%v), want %q", line, out, err, want)
	}
}

// TestNoShellRunsWhatAKeyHas: one that takes $'...' for a dollar and a plain string, as
// dash does, gets another argument, but no command.
func TestNoShellRunsWhatAKeyHas(t *testing.T) {
	for _, text := range append([]string{"\x01';touch pwned;#", "'\x1b'$(id)'", "\\'\x01"}, hostile...) {
		word := operate.CommandLine([]string{text})
		if plain, is := strings.CutPrefix(word, "$'"); is && strings.IndexByte(plain, '\'') != len(plain)-1 {
			t.Errorf("%q is written %s, whose string may end before its end", text, word)
		}
	}
}

// TestZshExpandsNothing: a word that begins with = is the path of a program to it.
func TestZshExpandsNothing(t *testing.T) {
	if got, want := operate.CommandLine([]string{"explain", "=ls", "a=b"}), "explain '=ls' a=b"; got != want {
		t.Errorf("it is written %s, want %s", got, want)
	}
}

// TestNoCommandForNUL: a shell would cut the argument off, and the command be about
// another key.
func TestNoCommandForNUL(t *testing.T) {
	line := operate.CommandLine([]string{"gobridge", "discard", "orders/crm", "--key", "a\x00b\nrm -r ."})
	if !strings.HasPrefix(line, "# ") || !strings.Contains(line, `"a\x00b\nrm -r ."`) || strings.Contains(line, "\n") {
		t.Errorf("it is written %q", line)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := operate.Thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
