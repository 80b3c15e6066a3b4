package main

import (
	"io"
	"os"
	"strings"

	"gobridge/operate"
)

// screen is where everything goes that people read. Keys, IDs, headers and errors are
// made by others: what would change a terminal, or hide, is written as an escape.
// Line breaks and tabs are taken for those of gobridge: see wrap, and operate.Visible
// for what stands within a line.
type screen struct{ w io.Writer }

func (s screen) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, onScreen(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// terminal returns the terminal that it writes to, nil if it is none.
func (s screen) terminal() *os.File {
	if f, ok := s.w.(*os.File); ok && isTerminal(f) {
		return f
	}
	return nil
}

// onScreen makes a text of lines visible.
func onScreen(text string) string {
	const own = "\n\t"
	var out strings.Builder
	for text != "" {
		i := strings.IndexAny(text, own)
		if i < 0 {
			i = len(text)
		}
		out.WriteString(operate.Visible(text[:i]))
		if i < len(text) {
			out.WriteByte(text[i])
			i++
		}
		text = text[i:]
	}
	return out.String()
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
