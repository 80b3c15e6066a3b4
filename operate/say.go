package operate

import (
	"fmt"
	"strings"
	"time"
)

// clock writes a time as people at a terminal read it: the hour of today, and
// the date of another day, in the local zone of now.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// Span writes a length of time with its largest unit, or its largest two where
// the second matters: 14s, 42m, 3h10m, 5d.
func Span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Second:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		if m := int(d.Minutes()) % 60; m > 0 {
			return fmt.Sprintf("%dh%dm", int(d.Hours()), m)
		}
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// oneLine makes an error's text fit a sentence.
func oneLine(text string) string { return cut(text, 160) }

// cut puts a text on one line of so many characters at most.
func cut(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// times says how often in words.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// because joins who and why to a sentence about a control.
func because(since time.Time, by, reason string, now time.Time) string {
	out := "since " + clock(since, now)
	if by != "" {
		out += " by " + by
	}
	if reason != "" {
		out += ": " + oneLine(reason)
	}
	return out
}
