package config

import (
	"crypto/sha256"
	"strings"
)

// scalarText is a scalar as it stands in the file, and with what is put in: as
// digests, for they may be secret.
type scalarText struct{ written, meant [sha256.Size]byte }

func textOf(written, meant string) scalarText {
	return scalarText{sha256.Sum256([]byte(written)), sha256.Sum256([]byte(meant))}
}

// Same reports whether two files say the same at a place and below it, with what
// is put in from outside: ("routes", "orders"). Order and comments don't count; a
// default that is written down does. What stands in files that are only named there,
// as certificates are, isn't looked at.
func (c *Config) Same(other *Config, path ...string) bool {
	return c.same(other, path, func(a, b scalarText) bool { return a.meant == b.meant })
}

// SameText is Same of what is written in the files, references and not what they
// stand for.
func (c *Config) SameText(other *Config, path ...string) bool {
	return c.same(other, path, func(a, b scalarText) bool { return a.written == b.written })
}

func (c *Config) same(other *Config, path []string, equal func(a, b scalarText) bool) bool {
	where := ""
	for _, name := range path {
		where = join(where, name)
	}
	count := 0
	for p := range c.at {
		if !within(p, where) {
			continue
		}
		count++
		if _, there := other.at[p]; !there || !equal(c.texts[p], other.texts[p]) {
			return false
		}
	}
	for p := range other.at {
		if within(p, where) {
			count--
		}
	}
	return count == 0
}

// within reports whether a path leads to a place or below it.
func within(path, where string) bool {
	rest, ok := strings.CutPrefix(path, where)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
