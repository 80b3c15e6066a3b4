package jsonlines_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gobridge"
	"gobridge/transport/jsonlines"
)

func open(t testing.TB, path string) *jsonlines.FileSender {
	t.Helper()
	s, err := jsonlines.OpenFile(path, jsonlines.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func send(t testing.TB, s gobridge.Sender, ids ...string) {
	t.Helper()
	batch := make([]gobridge.Delivery, len(ids))
	for i, id := range ids {
		batch[i] = delivery(id, `{}`)
	}
	for i, err := range s.Send(t.Context(), batch) {
		if err != nil {
			t.Fatalf("delivery %s: %v", ids[i], err)
		}
	}
}

// ids reads a file, every line of which must be whole.
func ids(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) > 0 && content[len(content)-1] != '\n' {
		t.Errorf("%s ends within a line: %q", path, content)
	}
	var out []string
	for line := range bytes.Lines(content) {
		d, _, err := jsonlines.Decode(line)
		if err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		out = append(out, d.Envelope.ID)
	}
	return strings.Join(out, " ")
}

func TestFileIsMadeWithItsFolderAndAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "out.jsonl")
	s := open(t, path)
	send(t, s, "m1", "m2")
	send(t, s, "m3")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	send(t, open(t, path), "m4")
	if got := ids(t, path); got != "m1 m2 m3 m4" {
		t.Errorf("file has %s", got)
	}
	for name, most := range map[string]os.FileMode{path: 0o640, filepath.Dir(path): 0o750} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if extra := info.Mode().Perm() &^ most; extra != 0 {
			t.Errorf("%s has permissions %o too many", name, extra)
		}
	}
}

func TestWhatACrashLeftIsCutOff(t *testing.T) {
	const good = `{"id":"m1"}` + "\n"
	for name, tail := range map[string]string{
		"nothing":                     "",
		"a line torn":                 `{"id":"m2","da`,
		"a line without its end":      `{"id":"m2"}`,
		"a long line torn":            `{"id":"m2","data_text":"` + strings.Repeat("x", 300_000),
		"blocks never written":        strings.Repeat("\x00", 5000),
		"blocks never written amid":   `{"id":"m2","d` + strings.Repeat("\x00", 100) + "\"}\n" + `{"id":"m3"}`,
		"a line hardly begun":         `{"`,
		"a torn line and a blank end": `{"id":"m2` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			if err := os.WriteFile(path, []byte(good+tail), 0o600); err != nil {
				t.Fatal(err)
			}
			send(t, open(t, path), "m9")
			if got := ids(t, path); got != "m1 m9" {
				t.Errorf("file has %s", got)
			}
		})
	}
}

func TestAnotherKindOfFileIsLeftAlone(t *testing.T) {
	folder := t.TempDir()
	text := filepath.Join(folder, "notes.txt")
	for _, content := range []string{
		"dear diary", "dear diary\n",
		`{"name":"precious","on":"one line"}`,
		"{\n  \"on\": \"several\"\n}\n",
		"a log\n{\"half\": ",
		strings.Repeat("\x00", 50) + "image",
		"HEAD\n" + strings.Repeat("\x00", 50) + "image",
		"{\"other\":1}\n" + strings.Repeat("\x00", 100),
	} {
		if err := os.WriteFile(text, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := jsonlines.OpenFile(text, jsonlines.Options{}); err == nil {
			t.Errorf("opened a file with %q", content)
		}
		if now, _ := os.ReadFile(text); string(now) != content {
			t.Errorf("changed %q to %q", content, now)
		}
	}
	for _, path := range []string{"", folder, os.DevNull, filepath.Join(text, "below")} {
		if _, err := jsonlines.OpenFile(path, jsonlines.Options{}); err == nil {
			t.Errorf("opened %q", path)
		}
	}
}

func TestNothingButBlocksNeverWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, open(t, path), "m1")
	if got := ids(t, path); got != "m1" {
		t.Errorf("file has %s", got)
	}
}

func TestFileMovedAwayIsBegunAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := open(t, path)
	send(t, s, "m1")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	send(t, s, "m2")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	send(t, s, "m3")
	if err := os.Truncate(path, 0); err != nil { // what a copying rotation does
		t.Fatal(err)
	}
	send(t, s, "m4")
	if old, now := ids(t, path+".1"), ids(t, path); old != "m1" || now != "m4" {
		t.Errorf("old file has %q, new file %q", old, now)
	}
}

func TestOutcomeOfABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := open(t, path)
	send(t, s, "m1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Send(t.Context(), []gobridge.Delivery{delivery("m2", ""), delivery("m3", "")}) {
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable {
			t.Errorf("outcome %v of %v: no message is to blame", outcome, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	send(t, s, "m2") // it recovers by itself
	if got := ids(t, path); got != "m2" {
		t.Errorf("file has %s", got)
	}
}

func TestSendAfterItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.Send(ctx, []gobridge.Delivery{delivery("m1", "")}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	}
	if got := s.Send(t.Context(), nil); len(got) != 0 {
		t.Errorf("answers for no delivery: %v", got)
	}
	_ = s.Close()
	for _, err := range s.Send(t.Context(), []gobridge.Delivery{delivery("m1", "")}) {
		if err == nil {
			t.Error("a closed sender took a delivery")
		}
	}
	if got := ids(t, path); got != "" {
		t.Errorf("file has %s", got)
	}
}

// Two senders of one file stand for two processes: the lock belongs to the
// opening of the file.
func TestSideBySide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	senders := []*jsonlines.FileSender{open(t, path), open(t, path)}
	const workers, batches = 8, 10
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := range batches {
				batch := []gobridge.Delivery{
					delivery(fmt.Sprintf("w%d-%d", w, 2*i), "{}"),
					delivery(fmt.Sprintf("w%d-%d", w, 2*i+1), "{}"),
				}
				for _, err := range senders[w%2].Send(t.Context(), batch) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wait.Wait()
	next := make(map[string]int)
	for id := range strings.FieldsSeq(ids(t, path)) {
		worker, number, _ := strings.Cut(id, "-")
		if want := fmt.Sprint(next[worker]); number != want {
			t.Fatalf("worker %s: number %s where %s is next", worker, number, want)
		}
		next[worker]++
	}
	for w := range workers {
		if name := fmt.Sprintf("w%d", w); next[name] != 2*batches {
			t.Errorf("worker %s has %d lines", name, next[name])
		}
	}
}

func TestStdoutMendsATornLine(t *testing.T) {
	out := &tearing{}
	s := jsonlines.Stdout(out)
	send(t, s, "m1")
	out.left = 5
	for _, err := range s.Send(t.Context(), []gobridge.Delivery{delivery("m2", ""), delivery("m3", "")}) {
		if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable {
			t.Errorf("outcome %v of %v", outcome, err)
		}
	}
	out.left = 0
	send(t, s, "m2", "m3")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 || lines[1] != `{"id"` {
		t.Fatalf("lines are %q", lines)
	}
	for i, want := range map[int]string{0: "m1", 2: "m2", 3: "m3"} {
		if d, _, err := jsonlines.Decode([]byte(lines[i])); err != nil || d.Envelope.ID != want {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
}

// tearing fails after so many bytes, unless left is zero.
type tearing struct {
	bytes.Buffer
	left int
}

func (w *tearing) Write(p []byte) (int, error) {
	if w.left == 0 {
		return w.Buffer.Write(p)
	}
	n, _ := w.Buffer.Write(p[:w.left])
	return n, errors.New("disk full")
}

func BenchmarkFile(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "out.jsonl"))
			batch := make([]gobridge.Delivery, size)
			for i := range batch {
				batch[i] = delivery("018f0000-0000-7000-8000-000000000000", `{"customer":"c-17","total":12.5}`)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Send(b.Context(), batch)[0]; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
