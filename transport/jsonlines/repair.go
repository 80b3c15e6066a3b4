package jsonlines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// repairStep is how much of the file's end is read at a time.
const repairStep = 64 << 10

// longestLine bounds what is read as one line: more than any of ours has, with
// every byte of its payload escaped.
const longestLine = 128 << 20

// ourStart is how every line of ours begins.
const ourStart = `{"id`

// repair cuts off what a crash left at the end of the file: a line without its
// end, or one that is no JSON, for blocks may reach the disk in any order. None
// of that was ever answered for. It returns the size left.
//
// Whatever else the file may end with is not ours, and is left alone with an
// error: a path that names somebody's file by mistake must not cost them any of
// it. Ours is what begins as our lines do, and a block never written in a file
// that does, or in one that has nothing else; and no line of ours has more bytes
// than longest.
func repair(f file, size int64, longest int) (int64, error) {
	good := size
	for good > 0 {
		line, start, err := lastLine(f, good, longest)
		if err != nil {
			return 0, err
		}
		if line[len(line)-1] == '\n' && (json.Valid(line) || len(bytes.TrimSpace(line)) == 0) {
			break
		}
		if ok, err := ours(f, line, start); err != nil {
			return 0, err
		} else if !ok {
			return 0, fmt.Errorf("it ends with a line that gobridge did not write, beginning with %q: "+
				"give another path, or move the file away", line[:min(len(line), 16)])
		}
		good = start
	}
	if good < size {
		if err := f.Truncate(good); err != nil {
			return 0, err
		}
	}
	return good, nil
}

// ours reports whether a broken line at the end of the file is what a crash
// left of ours.
func ours(f file, line []byte, start int64) (bool, error) {
	switch {
	case line[0] != 0:
		return beginsAsOurs(line), nil
	case start == 0:
		return len(bytes.Trim(line, "\x00")) == 0, nil
	}
	head := make([]byte, len(ourStart))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return beginsAsOurs(head), nil
}

func beginsAsOurs(line []byte) bool {
	n := min(len(line), len(ourStart))
	return string(line[:n]) == ourStart[:n]
}

// lastLine returns the last line of the first size bytes, with its end if it
// has one, and where it starts.
func lastLine(f file, size int64, longest int) ([]byte, int64, error) {
	var line []byte
	for start := size; start > 0; {
		if len(line) > longest {
			return nil, 0, fmt.Errorf("its last line has more than %d bytes, which none of gobridge's has: "+
				"give another path, or move the file away", longest)
		}
		step := min(start, max(repairStep, int64(len(line)))) // doubles, so that a long line costs no square
		chunk := make([]byte, step, step+int64(len(line)))
		start -= step
		if _, err := f.ReadAt(chunk, start); err != nil {
			return nil, 0, err
		}
		line = append(chunk, line...)
		// The end of the line itself does not count.
		if at := bytes.LastIndexByte(line[:len(line)-1], '\n'); at >= 0 {
			return line[at+1:], start + int64(at) + 1, nil
		}
	}
	return line, 0, nil
}
