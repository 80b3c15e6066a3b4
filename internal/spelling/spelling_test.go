package spelling_test

import (
	"strings"
	"testing"

	"gobridge/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"ordering-key", "subject", "not-before"}
	for word, want := range map[string]string{
		"ordering-key":           "ordering-key",
		"Ordering-Key":           "ordering-key",
		"orderingkey":            "ordering-key",
		"order-key":              "ordering-key",
		"odrering-key":           "ordering-key",
		"sbject":                 "subject",
		"not-befor":              "not-before",
		"tenant":                 "",
		"":                       "",
		strings.Repeat("x", 500): "",
	} {
		if got := spelling.Nearest(word, names); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
}
