package jsonlines

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gobridge"
	"gobridge/messaging"
)

// faulty is a file whose disk fails.
type faulty struct {
	*os.File
	writes      int // bytes written before the disk is full; negative is no bound
	sync, trunc error
}

var errDisk = errors.New("no space left on device")

func (f *faulty) Write(p []byte) (int, error) {
	if f.writes < 0 || len(p) <= f.writes {
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:f.writes])
	return n, errDisk
}

func (f *faulty) Sync() error {
	if f.sync != nil {
		return f.sync
	}
	return f.File.Sync()
}

func (f *faulty) Truncate(size int64) error {
	if f.trunc != nil {
		return f.trunc
	}
	return f.File.Truncate(size)
}

func batchOf(ids ...string) []gobridge.Delivery {
	out := make([]gobridge.Delivery, len(ids))
	for i, id := range ids {
		out[i].Envelope = messaging.Envelope{ID: id}
	}
	return out
}

// TestFailedBatchLeavesNoTrace tells of a full disk, a failed sync, and a file
// that can't even be cut back until it is opened again.
func TestFailedBatchLeavesNoTrace(t *testing.T) {
	for name, fault := range map[string]faulty{
		"disk full at once":              {writes: 0},
		"disk full within a line":        {writes: 7},
		"disk full between lines":        {writes: 120},
		"sync fails":                     {writes: -1, sync: errDisk},
		"within a line, and no way back": {writes: 7, trunc: errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			s, err := OpenFile(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if err := s.Send(t.Context(), batchOf("m1"))[0]; err != nil {
				t.Fatal(err)
			}
			fault.File = s.file.(*os.File)
			s.file = &fault
			for _, err := range s.Send(t.Context(), batchOf("m2", "m3")) {
				if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !errors.Is(err, errDisk) {
					t.Errorf("outcome %v of %v", outcome, err)
				}
			}
			if err := s.Send(t.Context(), batchOf("m2", "m3"))[1]; err != nil {
				t.Fatalf("with the disk well again: %v", err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(string(content)) {
				d, _, err := Decode([]byte(line))
				if err != nil {
					t.Errorf("line %q: %v", line, err)
				}
				got = append(got, d.Envelope.ID)
			}
			if strings.Join(got, " ") != "m1 m2 m3" {
				t.Errorf("file has %v", got)
			}
		})
	}
}

func TestHugeFileOfAnotherKindIsNotReadWhole(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const size = 1 << 40 // with nothing in it
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := repair(f, size, 1<<20); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != size {
		t.Errorf("the image has %d bytes now, %v", info.Size(), err)
	}
}
