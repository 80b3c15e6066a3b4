package mqtt

import (
	"errors"
	"fmt"
	"time"

	"gobridge"
)

// Reason codes that mean something to this package (MQTT 5, section 2.4).
const (
	codeUnspecified    = 0x80
	codeMalformed      = 0x81
	codeProtocol       = 0x82
	codeSpecific       = 0x83
	codeVersion        = 0x84
	codeCredentials    = 0x86
	codeNotAuthorized  = 0x87
	codeUnavailable    = 0x88
	codeBusy           = 0x89
	codeBanned         = 0x8A
	codeTakenOver      = 0x8E
	codeTopicName      = 0x90
	codeIDInUse        = 0x91
	codePacketTooLarge = 0x95
	codeRate           = 0x96
	codeQuota          = 0x97
	codePayloadFormat  = 0x99
	codeNoRetain       = 0x9A
	codeNoQoS          = 0x9B
)

// quotaWait is how long a broker is left alone that says that a quota is used up.
const quotaWait = 5 * time.Second

// codeNames are the codes that a broker can answer a client with.
var codeNames = map[byte]string{
	codeUnspecified: "unspecified error", codeMalformed: "malformed packet",
	codeProtocol: "protocol error", codeSpecific: "implementation specific error", codeVersion: "unsupported protocol version",
	0x85: "client identifier not valid", codeCredentials: "bad user name or password", codeNotAuthorized: "not authorized",
	codeUnavailable: "server unavailable", codeBusy: "server busy", codeBanned: "banned", 0x8B: "server shutting down",
	0x8C: "bad authentication method", 0x8D: "keep alive timeout", codeTakenOver: "session taken over",
	0x8F: "topic filter invalid", codeTopicName: "topic name invalid", codeIDInUse: "packet identifier in use",
	0x92: "packet identifier not found", 0x93: "receive maximum exceeded", 0x94: "topic alias invalid",
	codePacketTooLarge: "packet too large", codeRate: "message rate too high", codeQuota: "quota exceeded",
	0x98: "administrative action", codePayloadFormat: "payload format invalid", codeNoRetain: "retain not supported",
	codeNoQoS: "QoS not supported", 0x9C: "use another server", 0x9D: "server moved",
	0x9E: "shared subscriptions not supported", 0x9F: "connection rate exceeded", 0xA0: "maximum connect time",
	0xA1: "subscription identifiers not supported", 0xA2: "wildcard subscriptions not supported",
}

// codeError is a refusal by the broker.
type codeError struct {
	code byte
	said string // what it said beside the code
}

func (e *codeError) Error() string {
	name, known := codeNames[e.code]
	if !known {
		name = "unknown reason"
	}
	text := fmt.Sprintf("%s (0x%02X)", name, e.code)
	if e.said != "" {
		text += ": " + oneLine(e.said)
	}
	return text
}

// outcome says what the broker's answer to a publish means, by a PUBACK, PUBREC or
// PUBCOMP, or by a DISCONNECT with nothing else in flight. computed says that the
// topic is computed: then a refusal of the topic says nothing of other messages.
//
//	below 0x80                delivered; nobody has to be subscribed (0x10)
//	0x90, 0x95, 0x99          permanent: topic, size or payload format of this message
//	0x87                      unavailable, for the topic of all messages is refused; transient if computed
//	0x88, 0x89, 0x9A, 0x9B    unavailable: busy, or it takes no retained message or QoS as configured
//	0x96, 0x97                asks to slow down
//	any other                 transient
func outcome(code byte, err error, computed bool) error {
	if code < 0x80 {
		return nil // section 2.4
	}
	switch code {
	case codeTopicName, codePacketTooLarge, codePayloadFormat:
		return gobridge.Permanent(err)
	case codeNotAuthorized:
		if computed {
			return err
		}
		return gobridge.Unavailable(err)
	case codeUnavailable, codeBusy, codeNoRetain, codeNoQoS:
		return gobridge.Unavailable(err)
	case codeRate, codeQuota:
		return gobridge.RetryAfter(quotaWait, err)
	}
	return err
}

// condemns reports whether an end of the connection with this code is the fault of
// a packet that was sent on it.
func condemns(err error) (byte, bool) {
	var code *codeError
	if !errors.As(err, &code) {
		return 0, false
	}
	switch code.code {
	case codeMalformed, codeProtocol, codeTopicName, codePacketTooLarge, codePayloadFormat, codeNotAuthorized, codeNoRetain, codeNoQoS, codeQuota, codeRate:
		return code.code, true
	}
	return 0, false
}
