package jsonlines

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// repairStep is how much of the file's end is read at a time.
const repairStep = 64 << 10

// repair cuts off what a crash left at the end of the file: a line without its
// end, or one that is no JSON, for blocks may reach the disk in any order. None
// of that was ever answered for. It returns the size left.
//
// A file whose last line does not look like the beginning of an object, or like
// a block never written, is not ours, and is left alone with an error.
func repair(f file, size int64) (int64, error) {
	good := size
	for good > 0 {
		line, start, err := lastLine(f, good)
		if err != nil {
			return 0, err
		}
		if line[len(line)-1] == '\n' && (json.Valid(line) || len(bytes.TrimSpace(line)) == 0) {
			break
		}
		if line[0] != '{' && line[0] != 0 {
			return 0, fmt.Errorf("the last line begins with %q: not a file of JSON lines; give another path", line[0])
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

// lastLine returns the last line of the first size bytes, with its end if it
// has one, and where it starts.
func lastLine(f file, size int64) ([]byte, int64, error) {
	var line []byte
	for start := size; start > 0; {
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
