package console

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gobridge/operate"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü 日本 🎉": "plain ü 日本 🎉", "a\x00b": `a\x00b`, "a\nb\tc\r": `a\nb\tc\r`, "\u202egnp": `\u202egnp`, "\xff\xfe": `\xff\xfe`,
		"zero\u200bwidth": `zero\u200bwidth`, "nb\u00a0sp": `nb\u00a0sp`, "\ufeff": `\ufeff`, "": "",
	} {
		if got := operate.Visible(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := short(strings.Repeat("é", 10_000)); utf8.RuneCountInString(got) != maxShort+1 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d characters", utf8.RuneCountInString(got))
	}
}

func FuzzVisible(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, got := range map[string]string{"visible": operate.Visible(text), "short": short(text)} {
			if operate.Visible(got) != got {
				t.Errorf("%s of %q is %q", name, text, got)
			}
		}
	})
}

// TestCommandsMeanWhatTheySay has a shell read what is shown.
func TestCommandsMeanWhatTheySay(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(hostile(), "cust-7", "it's", `back\slash`, "", "$(id)", "`id`", "a b", "*", "~", "ü") {
		if strings.Contains(text, "\x00") {
			continue // no argument can have it
		}
		line := operate.CommandLine([]string{text})
		if operate.Visible(line) != line {
			t.Errorf("%q is written %q", text, line)
		}
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s "+line).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q is written %s, which is read as %q: %v", text, line, out, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		operate.Thousands(0): "0", operate.Thousands(999): "999", operate.Thousands(1000): "1,000", operate.Thousands(int64(1234567)): "1,234,567",
		bytesText(1): "1 byte", bytesText(1023): "1,023 bytes", bytesText(1536): "1.5 KB", bytesText(int64(5 << 30)): "5.0 GB",
		rateText(0): "0/s", rateText(0.01): "under 0.1/s", rateText(1.25): "1.2/s", rateText(1234.6): "1,235/s",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestHistory(t *testing.T) {
	var h history
	start := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	look := func(second int, stored, pending, dead int64) {
		h.add(&operate.Status{At: start.Add(time.Duration(second) * time.Second), Bindings: []operate.BindingStatus{
			{Route: "orders", Binding: "crm", Stored: stored, Pending: pending, Dead: dead},
		}})
	}
	rates := func(in, out string) {
		t.Helper()
		if gotIn, gotOut := h.rates("orders/crm"); gotIn != in || gotOut != out {
			t.Errorf("in %s, out %s; want %s, %s", gotIn, gotOut, in, out)
		}
	}
	rates("…", "…")
	look(0, 100, 10, 0)
	rates("…", "…")
	look(10, 300, 60, 0) // 200 came, 150 went
	rates("20/s", "15/s")
	look(20, 400, 60, 100) // 100 came and died: nothing went
	rates("15/s", "7.5/s")
	look(100, 400, 60, 100) // nobody looked for long
	rates("…", "…")
	look(110, 5, 5, 0) // restored, or spread anew
	rates("…", "…")
	for i := range 2 * maxSamples {
		look(200+5*i, int64(1000+i), 7, 0)
	}
	if n := len(h.of[""].samples); n != maxSamples {
		t.Errorf("%d samples are kept", n)
	}
	if depth := h.depth("orders/crm"); depth.Top != "at most 7" || !strings.Contains(string(depth.Picture), "waiting: 7, and 7 9m before") {
		t.Errorf("%+v", depth)
	}
	if flow := h.flow(""); !strings.Contains(string(flow.Picture), `class="out"`) {
		t.Errorf("%+v", flow)
	}
	h.add(&operate.Status{At: start.Add(time.Hour)})
	if len(h.of) != 1 {
		t.Errorf("%d histories are kept of bindings that are gone", len(h.of))
	}
	many := operate.Status{At: start.Add(2 * time.Hour)}
	for i := range 2 * maxSeries {
		many.Bindings = append(many.Bindings, operate.BindingStatus{Route: fmt.Sprint(i), Binding: "b"})
	}
	h.add(&many)
	if len(h.of) != maxSeries+1 {
		t.Errorf("%d histories are kept", len(h.of))
	}
}
