package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFile bounds a file that a value is read from.
const maxFile = 64 << 10

// Errors that do not repeat the text, for it may be part of a secret.
var (
	errUnclosed  = errors.New("has ${ without a closing }; write $${ for the characters themselves")
	errReference = errors.New("has a ${...} that is neither ${NAME}, ${NAME:-default} nor ${file:PATH}; " +
		"write $${ for the characters themselves")
)

// substitute replaces ${NAME}, ${NAME:-default} and ${file:PATH} in a value,
// and $${ by a plain ${. Values put in are not looked at again. Its errors
// name what is missing and never a value.
func (d *decoder) substitute(text string) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		reference, rest, ok := strings.Cut(text[i+2:], "}")
		if !ok {
			return "", errUnclosed
		}
		value, err := d.lookUp(reference)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = rest
	}
}

// lookUp returns what a reference stands for.
func (d *decoder) lookUp(reference string) (string, error) {
	if path, ok := strings.CutPrefix(reference, "file:"); ok {
		return d.readFile(path)
	}
	name, def, hasDefault := strings.Cut(reference, ":-")
	if !isVariable(name) {
		return "", errReference
	}
	value, ok := d.source.Env(name)
	switch {
	case hasDefault && value == "":
		return def, nil
	case !ok:
		return "", fmt.Errorf("needs the environment variable %s, which is not set", name)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i, c := range name {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// readFile returns the content of a regular file without one trailing newline.
func (d *decoder) readFile(path string) (string, error) {
	if path == "" {
		return "", errors.New("has ${file:} without a path")
	}
	full := path
	if !filepath.IsAbs(full) {
		full = filepath.Join(d.source.Dir, full)
	}
	info, err := os.Stat(full)
	if err != nil {
		return "", fmt.Errorf("needs the file %s: %w", full, cause(err))
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("needs the file %s, which is not a regular file", full)
	}
	f, err := os.Open(full)
	if err != nil {
		return "", fmt.Errorf("needs the file %s: %w", full, cause(err))
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("needs the file %s: %w", full, cause(err))
	}
	if len(content) > maxFile {
		return "", fmt.Errorf("needs the file %s, which is larger than %d bytes", full, maxFile)
	}
	value := strings.TrimSuffix(string(content), "\n")
	return strings.TrimSuffix(value, "\r"), nil
}

// cause takes the path out of a file error, which is told already.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
