package jsonlines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gobridge"
)

// Options configure a [FileSender]. The zero value works.
type Options struct {
	// Mode is the permission of a new file; 0640 when zero.
	Mode os.FileMode
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// FileSender appends to a file and has it on disk before it answers. It is safe
// for concurrent use, and several may append to one file, also from several
// processes.
//
// Every line of the file is whole: a write that fails is taken back, and what
// a crash left behind at the end is cut off before the next line is written.
// When the file was moved away, a new one is begun with the next batch.
//
// Whatever goes wrong with the file is the same for every message, so the
// binding waits ([gobridge.Unavailable]) until a write works again.
type FileSender struct {
	path string
	mode os.FileMode
	now  func() time.Time

	mu     sync.Mutex
	file   file // nil until it is open
	size   int64
	buffer []byte
	closed bool
}

// file is what the sender needs of an *os.File.
type file interface {
	io.Writer
	io.ReaderAt
	Fd() uintptr
	Stat() (os.FileInfo, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// openTime bounds the wait for another's batch while opening.
const openTime = 10 * time.Second

// OpenFile opens the file, or creates it and its folder.
func OpenFile(path string, options Options) (*FileSender, error) {
	s := &FileSender{path: path, mode: options.Mode, now: options.Now}
	if path == "" {
		return nil, errors.New("JSON-lines file: the path is empty")
	}
	if s.mode == 0 {
		s.mode = 0o640
	}
	if s.now == nil {
		s.now = time.Now
	}
	// The first look at the file, so that what is wrong with it comes up at once.
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		_ = s.shut()
		return nil, fmt.Errorf("JSON-lines file: %w", err)
	}
	_ = unlock(s.file)
	return s, nil
}

// Close closes the file. Everything answered for is on disk already.
func (s *FileSender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.shut()
}

// BatchLimits bounds what is held in memory.
func (s *FileSender) BatchLimits() gobridge.BatchLimits { return batchLimits() }

// Send appends the batch and syncs the file. Either all of it is done or none.
func (s *FileSender) Send(ctx context.Context, batch []gobridge.Delivery) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return all(batch, errClosed)
	}
	if len(batch) == 0 {
		return nil
	}
	if err := s.begin(ctx); err != nil {
		return s.failed(batch, err)
	}
	s.buffer = appendLines(s.buffer[:0], batch, s.now())
	err := s.write(s.buffer)
	s.buffer = reuse(s.buffer)
	if err != nil {
		return s.failed(batch, err)
	}
	// Closing the file would unlock it too; nothing is lost if this fails.
	_ = unlock(s.file)
	return make([]error, len(batch))
}

// failed closes the file, which unlocks it, so that the next batch looks at it
// afresh, and answers for the batch.
func (s *FileSender) failed(batch []gobridge.Delivery, err error) []error {
	_ = s.shut()
	return all(batch, gobridge.Unavailable(fmt.Errorf("JSON-lines file: %w", err)))
}

// begin makes sure that the file is the one at the path, locked, and ends with
// a whole line.
func (s *FileSender) begin(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.file == nil {
			if err := s.open(); err != nil {
				return err
			}
		}
		if err := lock(ctx, s.file); err != nil {
			return fmt.Errorf("lock %s: %w", s.path, err)
		}
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		if there, err := os.Stat(s.path); err != nil || !os.SameFile(info, there) {
			// Moved away or removed, perhaps while the lock was waited for.
			if err := s.shut(); err != nil {
				return err
			}
			continue
		}
		if info.Size() != s.size {
			// Just opened, or another has written, and may have died of it.
			if s.size, err = repair(s.file, info.Size(), longestLine); err != nil {
				return fmt.Errorf("%s: %w", s.path, err)
			}
		}
		return nil
	}
}

// write appends the lines and syncs. What failed is taken back as far as the
// disk lets it; the rest is for repair.
func (s *FileSender) write(lines []byte) error {
	n, err := s.file.Write(lines)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		if cut := s.file.Truncate(s.size); cut != nil {
			err = errors.Join(err, cut)
		}
		return err
	}
	s.size += int64(len(lines))
	return nil
}

func (s *FileSender) open() error {
	folder := filepath.Dir(s.path)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, s.mode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", s.path)
	}
	if err == nil {
		// A new name must survive a power failure as its content does.
		err = syncFolder(folder)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.file = f
	s.size = -1 // not known to end with a whole line
	return nil
}

func (s *FileSender) shut() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
