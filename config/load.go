package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxSize bounds the file, in bytes.
const maxSize = 1 << 20

// Input is a file to read, and what its substitutions draw on.
type Input struct {
	// Name stands for the file in problems.
	Name string
	Data []byte
	// Dir is where relative paths of ${file:PATH} begin.
	Dir string
	// Env looks up an environment variable; nil means that there are none.
	Env func(name string) (value string, ok bool)
}

// Load reads and checks a file, with this process's environment. If the
// content is to blame, the error is an [*Error].
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(Input{Name: path, Data: data, Dir: filepath.Dir(path), Env: os.LookupEnv})
}

// Parse reads and checks a file. Its errors are an [*Error] each.
func Parse(source Input) (*Config, error) {
	if source.Env == nil {
		source.Env = func(string) (string, bool) { return "", false }
	}
	d := &decoder{source: source, at: map[string]position{}, texts: map[string]scalarText{}}
	var config Config
	if root := d.document(); root != nil {
		d.value(root, reflect.ValueOf(&config).Elem(), field{}, "")
		d.check(&config)
	}
	if len(d.problems) > 0 {
		sortProblems(d.problems)
		return nil, &Error{Problems: d.problems, Omitted: d.omitted}
	}
	config.Warnings = d.warnings(&config)
	config.file, config.at, config.shown, config.texts = d.source.Name, d.at, d.shown, d.texts
	return &config, nil
}

// document returns the root of the only document, or reports why there is none.
func (d *decoder) document() *yaml.Node {
	if len(d.source.Data) > maxSize {
		d.reportAt(position{}, "", "", "the file is larger than %d bytes", maxSize)
		return nil
	}
	if where, what := unreadable(d.source.Data); what != "" {
		d.reportAt(where, "", "save it as UTF-8 text", "%s", what)
		return nil
	}
	d.lines = strings.Split(strings.ReplaceAll(string(d.source.Data), "\r\n", "\n"), "\n")
	loader, err := yaml.NewLoader(bytes.NewReader(d.source.Data))
	if err != nil {
		d.reportAt(position{}, "", "", "the file cannot be read")
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); errors.Is(err, io.EOF) || err == nil && empty(&first) {
		d.reportAt(position{}, "", "write at least version, store and routes", "the file is empty")
		return nil
	} else if err != nil {
		d.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		d.report(&second, "", "one file has one document; remove what follows ---", "a second document begins here")
		return nil
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return nil
	}
	return first.Content[0]
}

// unreadable says where and why the bytes of a file are no text, and nothing if
// they are.
func unreadable(data []byte) (position, string) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return position{}, "the file is UTF-16"
	}
	at := position{1, 1}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[0])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r':
			return at, fmt.Sprintf("the character U+%04X is a control character", r)
		case r == '\n':
			at = position{at.line + 1, 0}
		}
		at.column++
		data = data[size:]
	}
	return position{}, ""
}

// empty reports whether a document has nothing in it.
func empty(doc *yaml.Node) bool {
	if len(doc.Content) == 0 {
		return true
	}
	root := doc.Content[0]
	return root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null"
}

// syntax reports that the file is not YAML.
func (d *decoder) syntax(err error) {
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		d.reportAt(position{}, "", "", "the file is not YAML")
		return
	}
	message, hint := le.Message, ""
	switch {
	case strings.Contains(message, "unknown anchor"):
		// The name is left out: it may be a secret that begins with an asterisk.
		message, hint = "an alias (*) has no anchor (&)", "put a value that begins with * in quotes"
	case strings.Contains(message, "cannot start any token") && d.tabAt(le.Mark.Line, le.Mark.Column):
		message, hint = "a tab where a value or an indentation is expected", "indent with spaces"
	case strings.Contains(message, "cannot start any token"):
		hint = "put a value that begins with a special character in quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		hint = "put a value with a colon in quotes, and check the indentation"
	case strings.Contains(message, "did not find expected") && d.refersAt(le.Mark.Line):
		hint = "inside { } and [ ], put a value with ${...} in quotes"
	case strings.Contains(message, "did not find expected"):
		hint = "check the indentation, and that brackets and quotes are closed"
	}
	if le.ContextMsg != "" {
		message = le.ContextMsg + ": " + message
	}
	d.reportAt(position{le.Mark.Line, le.Mark.Column}, "", hint, "YAML: %s", message)
}

// tabAt reports whether there is a tab at a place of the file.
func (d *decoder) tabAt(line, column int) bool {
	text, _ := d.line(line)
	runes := []rune(text)
	return 1 <= column && column <= len(runes) && runes[column-1] == '\t'
}

// refersAt reports whether something is to be put into a line.
func (d *decoder) refersAt(number int) bool {
	text, _ := d.line(number)
	return strings.Contains(text, "${")
}
