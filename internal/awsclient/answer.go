package awsclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"gobridge"
)

// throttled is how long a destination is left alone that asks for it: AWS does not
// say how long.
const throttled = time.Second

// kinds says what codes of SQS, SNS, and of AWS in common mean, without prefixes
// (AWS.SimpleQueueService.), without a suffix Exception, and without regard to case
// (SQS writes KmsDisabled, SNS KMSDisabled). Sources: the API references of SQS and
// SNS, each operation's errors and the common errors.
var kinds = map[string]gobridge.Outcome{
	"requestthrottled":              slow,
	"throttling":                    slow,
	"throttled":                     slow,
	"kmsthrottled":                  slow,
	"kmsthrottling":                 slow,
	"overlimit":                     slow,
	"requestlimitexceeded":          slow,
	"limitexceeded":                 slow,
	"toomanyrequests":               slow,
	"slowdown":                      slow,
	"bandwidthlimitexceeded":        slow,
	"provisionedthroughputexceeded": slow,

	"queuedoesnotexist":          gobridge.OutcomeUnavailable,
	"nonexistentqueue":           gobridge.OutcomeUnavailable,
	"queuedeletedrecently":       gobridge.OutcomeUnavailable,
	"notfound":                   gobridge.OutcomeUnavailable,
	"resourcenotfound":           gobridge.OutcomeUnavailable,
	"accessdenied":               gobridge.OutcomeUnavailable,
	"authorizationerror":         gobridge.OutcomeUnavailable,
	"notauthorized":              gobridge.OutcomeUnavailable,
	"optinrequired":              gobridge.OutcomeUnavailable,
	"unrecognizedclient":         gobridge.OutcomeUnavailable,
	"invalidclienttokenid":       gobridge.OutcomeUnavailable,
	"invalidaccesskeyid":         gobridge.OutcomeUnavailable,
	"missingauthenticationtoken": gobridge.OutcomeUnavailable,
	"incompletesignature":        gobridge.OutcomeUnavailable,
	"signaturedoesnotmatch":      gobridge.OutcomeUnavailable,
	"invalidsignature":           gobridge.OutcomeUnavailable,
	"expiredtoken":               gobridge.OutcomeUnavailable,
	"requestexpired":             gobridge.OutcomeUnavailable,
	"invalidsecurity":            gobridge.OutcomeUnavailable,
	"invalidaddress":             gobridge.OutcomeUnavailable,
	"unsupportedoperation":       gobridge.OutcomeUnavailable,
	"endpointdisabled":           gobridge.OutcomeUnavailable,
	"serviceunavailable":         gobridge.OutcomeUnavailable,
	"kmsaccessdenied":            gobridge.OutcomeUnavailable,
	"kmsdisabled":                gobridge.OutcomeUnavailable,
	"kmsinvalidkeyusage":         gobridge.OutcomeUnavailable,
	"kmsinvalidstate":            gobridge.OutcomeUnavailable,
	"kmsnotfound":                gobridge.OutcomeUnavailable,
	"kmsoptinrequired":           gobridge.OutcomeUnavailable,

	"invalidmessagecontents": gobridge.OutcomePermanent,
	"invalidattributevalue":  gobridge.OutcomePermanent,
	"invalidattributename":   gobridge.OutcomePermanent,
	"invalidparametervalue":  gobridge.OutcomePermanent,
	"parametervalueinvalid":  gobridge.OutcomePermanent,
	"invalidparameter":       gobridge.OutcomePermanent,
	"missingparameter":       gobridge.OutcomePermanent,
	"validation":             gobridge.OutcomePermanent,
	"batchrequesttoolong":    gobridge.OutcomePermanent,
	"requesttoolarge":        gobridge.OutcomePermanent,

	"internalerror":    gobridge.OutcomeTransient,
	"internalfailure":  gobridge.OutcomeTransient,
	"concurrentaccess": gobridge.OutcomeTransient,
	"requesttimeout":   gobridge.OutcomeTransient,
}

// slow stands for what asks to slow down.
const slow = gobridge.OutcomeUnavailable + 100

// Answer gives an error of a whole call, or of one entry of a batch as [Entry]
// makes it, its meaning for a delivery: [gobridge.RetryAfter] when AWS asks to slow
// down, [gobridge.Unavailable] when there is no connection, no credentials, no
// permission, no such queue or topic, or its key can't be used,
// [gobridge.Permanent] when the message itself is refused, and err as it is when it
// may work later, above all when nobody knows whether AWS has taken it.
func Answer(err error) error {
	if err == nil {
		return nil
	}
	switch kindOf(err) {
	case slow:
		return gobridge.RetryAfter(throttled, err)
	case gobridge.OutcomeUnavailable:
		return gobridge.Unavailable(err)
	case gobridge.OutcomePermanent:
		return gobridge.Permanent(err)
	default:
		return err
	}
}

func kindOf(err error) gobridge.Outcome {
	if kind, known := kinds[CodeOf(err)]; known {
		return kind
	}
	var api smithy.APIError
	var entry *entryError
	var response *smithyhttp.ResponseError
	switch {
	case errors.As(err, &api) && strings.HasPrefix(strings.ToLower(api.ErrorCode()), "kms"):
		return gobridge.OutcomeUnavailable // whatever is wrong with the key, KMS.DisabledException for one
	case errors.As(err, &entry):
		if entry.fault == smithy.FaultClient {
			return gobridge.OutcomePermanent
		}
	case unreachable(err):
		return gobridge.OutcomeUnavailable
	case errors.As(err, &response): // of a proxy perhaps, without a code of AWS
		if kind, known := statuses[response.HTTPStatusCode()]; known {
			return kind
		}
	}
	return gobridge.OutcomeTransient
}

// statuses says what a status means that comes with no code known here. The others
// are transient, and so is 0, the SDK's when there was no answer.
var statuses = map[int]gobridge.Outcome{
	http.StatusUnauthorized:       gobridge.OutcomeUnavailable,
	http.StatusForbidden:          gobridge.OutcomeUnavailable,
	http.StatusNotFound:           gobridge.OutcomeUnavailable,
	http.StatusMethodNotAllowed:   gobridge.OutcomeUnavailable,
	http.StatusProxyAuthRequired:  gobridge.OutcomeUnavailable,
	http.StatusTooManyRequests:    slow,
	http.StatusServiceUnavailable: gobridge.OutcomeUnavailable,
}

// Code returns the code of an error of AWS as it is compared here: in lower case,
// without what comes before its last dot, and without Exception at its end.
func Code(code string) string {
	code = strings.ToLower(code[strings.LastIndexByte(code, '.')+1:])
	return strings.TrimSuffix(code, "exception")
}

// CodeOf returns the code of an error, as [Code] writes it; empty if AWS gave none.
func CodeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return Code(api.ErrorCode())
	}
	return ""
}

// unreachable reports whether a request surely never left.
func unreachable(err error) bool {
	var credentials *CredentialsError
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &credentials) || errors.As(err, &dns) || errors.As(err, &certificate) ||
		errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled)
}

// entryError is the failure of one entry of a batch.
type entryError struct {
	code, message string
	fault         smithy.ErrorFault
}

// Entry makes an error of the code and message of a batch's entry; senderFault
// says that AWS blames the message.
func Entry(code, message *string, senderFault bool) error {
	e := &entryError{fault: smithy.FaultServer}
	if senderFault {
		e.fault = smithy.FaultClient
	}
	if code != nil {
		e.code = *code
	}
	if message != nil {
		e.message = *message
	}
	return e
}

func (e *entryError) Error() string {
	if e.message == "" {
		return e.code
	}
	return fmt.Sprintf("%s: %s", e.code, e.message)
}

// ErrorCode, ErrorMessage and ErrorFault make it one of the SDK's errors.
func (e *entryError) ErrorCode() string { return e.code }

// ErrorMessage returns what AWS says.
func (e *entryError) ErrorMessage() string { return e.message }

// ErrorFault says whom AWS blames.
func (e *entryError) ErrorFault() smithy.ErrorFault { return e.fault }
