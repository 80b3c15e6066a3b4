package nats

import (
	"errors"
	"fmt"
	"strings"
)

// maxSubject bounds a subject to publish to, in bytes: with the subject of the
// answer it has to fit into a line of the protocol, 4 KiB unless a server says
// otherwise.
const maxSubject = 1024

// checkSubject returns what keeps a subject from being published to. Its text goes
// on where the subject's name ends.
func checkSubject(subject string) error {
	if err := checkPrefix(subject); err != nil {
		return err
	}
	if strings.HasPrefix(subject, "$") && !strings.HasPrefix(subject, "$KV.") || strings.HasPrefix(subject, "_INBOX.") {
		return fmt.Errorf("%q begins with what NATS keeps for itself", shown(subject))
	}
	return nil
}

// checkPrefix returns what keeps a subject from being one subject.
func checkPrefix(subject string) error {
	if err := checkFilter(subject); err != nil {
		return err
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "*" || token == ">" {
			return fmt.Errorf("%q has the wildcard %s; one subject is needed", shown(subject), token)
		}
	}
	return nil
}

// checkFilter returns what is wrong with a subject that may have wildcards.
func checkFilter(subject string) error {
	switch {
	case subject == "":
		return errors.New("is empty")
	case len(subject) > maxSubject:
		return fmt.Errorf("has %d bytes; %d are possible", len(subject), maxSubject)
	case strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("%q has a space or a control character", shown(subject))
	}
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return fmt.Errorf("%q has an empty token: a dot at an end, or two together", shown(subject))
		case token == ">" && i < len(tokens)-1:
			return fmt.Errorf("%q has > before its end", shown(subject))
		}
	}
	return nil
}

// shown shortens a text for an error.
func shown(text string) string {
	const most = 80
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
