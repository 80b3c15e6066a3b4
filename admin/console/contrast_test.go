package console

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestContrast holds the colors against WCAG 2.2 AA: text 4.5 to 1 (criterion
// 1.4.3), borders of fields, focus and lines of charts 3 to 1 (1.4.11).
func TestContrast(t *testing.T) {
	style, err := files.ReadFile("static/console.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(style), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("no dark theme")
	}
	themes := map[string]map[string]string{"light": colors(light), "dark": colors(dark[:strings.Index(dark, "\n}")])}
	if len(themes["light"]) != len(themes["dark"]) {
		t.Errorf("%d colors are light, %d dark", len(themes["light"]), len(themes["dark"]))
	}
	for name, theme := range themes {
		check := func(least float64, front, back string) {
			t.Helper()
			if theme[front] == "" || theme[back] == "" {
				t.Fatalf("%s: no color %s or %s", name, front, back)
			}
			if got := contrast(t, theme[front], theme[back]); got < least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", name, front, back, got, least)
			}
		}
		for _, front := range []string{"text", "muted", "accent", "bad", "hold", "good", "note"} {
			for _, back := range []string{"bg", "panel"} {
				check(4.5, front, back)
			}
		}
		for _, tone := range []string{"bad", "hold", "good", "note"} {
			check(4.5, tone, tone+"-bg")
		}
		check(4.5, "on-accent", "accent")
		check(4.5, "on-bad", "bad")
		for _, front := range []string{"field", "in", "out", "note"} {
			check(3, front, "panel")
			check(3, front, "bg")
		}
	}
	// No color stands outside of the two lists.
	_, rest, _ := strings.Cut(dark, "\n}\n")
	if stray := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|\brgba?\(`).FindString(rest); stray != "" {
		t.Errorf("the color %s is in no theme", stray)
	}
}

func colors(style string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(style, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// contrast is the ratio of WCAG 2.2: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// luminance is https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
