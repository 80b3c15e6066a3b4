package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// place is where a file was when it was opened. An open file that has been
// deleted, moved or replaced goes on working, but nobody will find again what is
// written to it.
type place struct {
	path string // empty where there is no file, or it could not be told
	info fs.FileInfo
}

func placeOf(path string) place {
	if path == "" {
		return place{}
	}
	info, err := os.Stat(path)
	if err != nil {
		return place{}
	}
	return place{path, info}
}

// left returns an error if the file is there no longer.
func (p *place) left() error {
	if p.path == "" {
		return nil
	}
	info, err := os.Stat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was deleted or moved away while it was open: restart the process", p.path)
	case err == nil && !os.SameFile(p.info, info):
		return fmt.Errorf("%s was replaced by another file while it was open: restart the process", p.path)
	}
	return nil // other errors say nothing of the open file
}
