package mqtt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is how long a text of MQTT can be, in bytes (section 1.5.4).
const maxText = 65535

// checkText reports why s can't travel as text: MQTT has UTF-8 without U+0000, and
// brokers may refuse other control characters and non-characters (section 1.5.4).
func checkText(s string) error {
	if len(s) > maxText {
		return fmt.Errorf("has %d bytes; MQTT can carry %d", len(s), maxText)
	}
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8, as MQTT needs it")
	}
	if i := strings.IndexFunc(s, uncarried); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fmt.Errorf("has the character %U, which brokers refuse", r)
	}
	return nil
}

func uncarried(r rune) bool {
	return unicode.IsControl(r) || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe
}

// checkTopic reports why nothing can be published to a topic (section 4.7).
func checkTopic(topic string) error {
	if topic == "" {
		return errors.New("the topic is empty")
	}
	if err := checkText(topic); err != nil {
		return fmt.Errorf("the topic %w", err)
	}
	if strings.ContainsAny(topic, "+#") {
		return fmt.Errorf("the topic %q has a wildcard; a topic that is published to has none", topic)
	}
	return nil
}

// checkFilter reports why a topic filter can't be subscribed to (section 4.7.1).
func checkFilter(filter string) error {
	if filter == "" {
		return errors.New("a topic filter is empty")
	}
	if err := checkText(filter); err != nil {
		return fmt.Errorf("topic filter %q %w", filter, err)
	}
	if strings.HasPrefix(filter, "$share/") {
		return fmt.Errorf("topic filter %q: write it without $share/ and the group, and the group as share", filter)
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		switch {
		case level == "+", level == "#" && i == len(levels)-1, !strings.ContainsAny(level, "+#"):
		case level == "#":
			return fmt.Errorf("topic filter %q: # can only be its last level", filter)
		default:
			return fmt.Errorf("topic filter %q: a wildcard fills a whole level", filter)
		}
	}
	return nil
}

// checkGroup reports why a shared subscription can't have a name (section 4.8.2).
func checkGroup(group string) error {
	if err := checkText(group); err != nil {
		return fmt.Errorf("share %w", err)
	}
	if strings.ContainsAny(group, "/+#") {
		return fmt.Errorf("share is %q; the name of a group has no /, + and #", group)
	}
	return nil
}

// covers reports whether a filter takes every topic that a narrower filter, or
// topic, does (section 4.7).
func covers(wide, narrow string) bool {
	if strings.HasPrefix(narrow, "$") && strings.IndexAny(wide, "+#") == 0 {
		return false // section 4.7.2
	}
	w, n := strings.Split(wide, "/"), strings.Split(narrow, "/")
	for i, level := range w {
		if level == "#" {
			return true
		}
		if i >= len(n) || n[i] == "#" || level != "+" && level != n[i] {
			return false
		}
	}
	return len(w) == len(n)
}

// checkFilters reports what is wrong with the filters of one source. A broker may
// deliver a message once for each filter that takes it (section 3.3.4), so none takes
// all that another does.
func checkFilters(filters []string) error {
	if len(filters) == 0 {
		return errors.New("there is no topic filter")
	}
	var errs []error
	for i, f := range filters {
		if err := checkFilter(f); err != nil {
			errs = append(errs, err)
			continue
		}
		if j := slices.Index(filters, f); j < i {
			errs = append(errs, fmt.Errorf("topic filter %q stands there twice", f))
			continue
		}
		for _, other := range filters {
			if other != f && covers(other, f) {
				errs = append(errs, fmt.Errorf("topic filter %q takes nothing that %q does not; leave it out, or messages come twice", f, other))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// oneLine makes text from outside fit for a line.
func oneLine(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
}
