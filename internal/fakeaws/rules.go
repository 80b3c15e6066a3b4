package fakeaws

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// What AWS allows, as its references have it. The production code has its own
// reading of them.
var (
	textRule   = regexp.MustCompile(`^[\x{9}\x{A}\x{D}\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]+$`)
	tokenRule  = regexp.MustCompile("^[a-zA-Z0-9!\"#$%&'()*+,\\-./:;<=>?@[\\\\\\]^_`{|}~]{1,128}$")
	idRule     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)
	nameRule   = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$`)
	amazonRule = regexp.MustCompile(`(?i)^(aws|amazon)\.`)
	typeRule   = regexp.MustCompile(`^(String|Number|Binary)(\..+)?$`)
)

const (
	maxEntries    = 10
	maxAttributes = 10
	maxQueueBytes = 1 << 20
)

// attribute is a message attribute.
type attribute struct {
	DataType    string
	StringValue string `json:",omitempty"`
	BinaryValue string `json:",omitempty"` // base64
}

func (a attribute) value() string {
	if strings.HasPrefix(a.DataType, "Binary") {
		b, _ := base64.StdEncoding.DecodeString(a.BinaryValue)
		return string(b)
	}
	return a.StringValue
}

// message is what is sent.
type message struct {
	body       string
	attributes map[string]attribute
	group      string
	dedupe     string
	subject    string
}

func (m *message) size() int {
	n := len(m.body) + len(m.subject)
	for name, a := range m.attributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

// check refuses a message that a queue or topic, FIFO or not, does not take.
func (m *message) check(fifo bool, maxAttributes, maxBytes int) *failure {
	switch {
	case m.body == "":
		return refuse("MissingParameter", "the body is empty")
	case !textRule.MatchString(m.body):
		return refuse("InvalidMessageContents", "the body has characters that are not allowed")
	case len(m.attributes) > maxAttributes:
		return refuse("InvalidParameterValue", "%d attributes, %d are allowed", len(m.attributes), maxAttributes)
	case m.size() > maxBytes:
		return refuse("InvalidParameterValue", "%d bytes, %d are allowed", m.size(), maxBytes)
	case fifo && m.group == "":
		return refuse("MissingParameter", "no MessageGroupId")
	case fifo && m.dedupe == "":
		return refuse("InvalidParameterValue", "no MessageDeduplicationId")
	case m.group != "" && !tokenRule.MatchString(m.group):
		return refuse("InvalidParameterValue", "MessageGroupId %q", m.group)
	case m.dedupe != "" && !tokenRule.MatchString(m.dedupe):
		return refuse("InvalidParameterValue", "MessageDeduplicationId %q", m.dedupe)
	case !fifo && m.dedupe != "":
		return refuse("InvalidParameterValue", "MessageDeduplicationId is for FIFO only")
	}
	for name, a := range m.attributes {
		text := a.value()
		switch {
		case len(name) > 256 || !nameRule.MatchString(name) || amazonRule.MatchString(name):
			return refuse("InvalidParameterValue", "attribute name %q", name)
		case len(a.DataType) > 256 || !typeRule.MatchString(a.DataType):
			return refuse("InvalidParameterValue", "attribute %s has type %q", name, a.DataType)
		case text == "":
			return refuse("InvalidParameterValue", "attribute %s is empty", name)
		case !strings.HasPrefix(a.DataType, "Binary") && !textRule.MatchString(text):
			return refuse("InvalidParameterValue", "attribute %s has characters that are not allowed", name)
		}
	}
	return nil
}

// checkBatch refuses a batch as a whole.
func checkBatch(ids []string, bytes, maxBytes int) *failure {
	seen := map[string]bool{}
	switch {
	case len(ids) == 0:
		return refuse("AWS.SimpleQueueService.EmptyBatchRequest", "no entries")
	case len(ids) > maxEntries:
		return refuse("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "%d entries", len(ids))
	}
	for _, id := range ids {
		if !idRule.MatchString(id) {
			return refuse("AWS.SimpleQueueService.InvalidBatchEntryId", "ID %q", id)
		}
		if seen[id] {
			return refuse("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "ID %q twice", id)
		}
		seen[id] = true
	}
	if bytes > maxBytes {
		return refuse("AWS.SimpleQueueService.BatchRequestTooLong", "%d bytes, %d are allowed", bytes, maxBytes)
	}
	return nil
}
