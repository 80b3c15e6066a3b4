package awsmessage

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"gobridge"
	"gobridge/internal/percent"
	"gobridge/messaging"
)

// textFits reports whether AWS takes a text as a body or as the value of an
// attribute: not empty, UTF-8, and of the characters #x9, #xA, #xD, #x20 to #xD7FF,
// #xE000 to #xFFFD and #x10000 to #x10FFFF (SQS API reference, SendMessage).
func textFits(text string) bool {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 || r == 0xFFFE || r == 0xFFFF {
			return false
		}
		i += size
	}
	return text != ""
}

// nameFits reports whether an attribute can have this name (SQS API reference,
// ReceiveMessage, MessageAttributeNames).
func nameFits(name string) bool {
	if name == "" || len(name) > maxName || name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !alnum(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

const (
	// maxToken is the length of a group ID or a deduplication ID, in characters.
	maxToken = 128
	// hashed begins what stands for a text that is no such ID.
	hashed = "sha256-"
)

// Token returns a text as a MessageGroupId or a MessageDeduplicationId: itself if
// it has 1 to 128 letters, digits and punctuation marks of ASCII (SQS API reference,
// SendMessage), otherwise, and when it begins with sha256- itself, "sha256-" and its
// SHA-256 in hexadecimal. So no two texts have the same token, as far as SHA-256
// goes.
func Token(text string) string {
	fits := text != "" && len(text) <= maxToken && !strings.HasPrefix(text, hashed)
	for i := 0; i < len(text) && fits; i++ {
		fits = '!' <= text[i] && text[i] <= '~'
	}
	if fits {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hashed + hex.EncodeToString(sum[:])
}

// DedupeID returns what a FIFO queue or topic knows a repetition by, a token. What
// differs in anything but the attempt is no repetition: another route's or binding's
// message, a redrive, and a message to which some producer gave the same ID.
func DedupeID(d *gobridge.Delivery) string {
	hash := messaging.ContentHash(&d.Envelope)
	return Token(d.Route + "/" + d.Binding + "/" + percent.Encode(d.DedupeID(), "/") + "/" + hex.EncodeToString(hash[:8]))
}
