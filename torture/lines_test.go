package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// delivered is a line of the file binding, as far as it matters here.
type delivered struct {
	ID      string          `json:"id"`
	Attempt int             `json:"attempt"`
	Version int             `json:"version"`
	Data    json.RawMessage `json:"data"`
}

// readLines reads a file of JSON lines as arrivals.
func readLines(path string) ([]event, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []event
	var wrong []error
	for i, text := range bytes.SplitAfter(data, []byte("\n")) {
		if len(text) == 0 {
			continue
		}
		e, err := parseLine(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s line %d: %w: %.200q", filepath.Base(path), i+1, err, text))
			continue
		}
		e.note += fmt.Sprintf(", line %d", i+1)
		out = append(out, e)
	}
	return out, errors.Join(wrong...)
}

func parseLine(text []byte) (event, error) {
	var d delivered
	var m message
	if !bytes.HasSuffix(text, []byte("\n")) {
		return event{}, errors.New("the line has no end")
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return event{}, err
	}
	if err := json.Unmarshal(d.Data, &m); err != nil {
		return event{}, fmt.Errorf("the payload: %w", err)
	}
	if d.ID != m.ID {
		return event{}, fmt.Errorf("the line's ID is %q, the payload's %q", d.ID, m.ID)
	}
	return event{kind: arrived, binding: "file", id: m.ID, key: m.Key, seq: m.Seq,
		digest: digest(d.Data), attempt: d.Attempt, taken: true,
		note: fmt.Sprintf("(token version %d)", d.Version)}, nil
}
