package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gobridge"
)

// shownBody is how much of a response body an error shows, in bytes.
const shownBody = 200

// shownError is how much of a transport's error is shown, in bytes: enough for
// the names in a certificate.
const shownError = 1000

// maxRetryAfter bounds what a destination can ask for.
const maxRetryAfter = 24 * time.Hour

// outcome says what a status other than a success means. The package comment
// has the table.
func outcome(status int, retryAfter string, now time.Time, err error) error {
	switch status {
	case http.StatusTooManyRequests:
		after, _ := parseRetryAfter(retryAfter, now)
		return gobridge.RetryAfter(after, err)
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusProxyAuthRequired, http.StatusGone,
		http.StatusLengthRequired, http.StatusRequestURITooLong, http.StatusExpectationFailed,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusPreconditionRequired:
		return gobridge.Unavailable(err)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusFailedDependency,
		http.StatusTooEarly:
		return transient(retryAfter, now, err)
	}
	switch {
	case 400 <= status && status <= 499:
		return gobridge.Permanent(err)
	case status < 400: // redirects, and a switch of protocols that nobody asked for
		return gobridge.Unavailable(err)
	default: // a status beyond 599 is to be taken for a 5xx (RFC 9110, section 15)
		return transient(retryAfter, now, err)
	}
}

func transient(retryAfter string, now time.Time, err error) error {
	if after, ok := parseRetryAfter(retryAfter, now); ok {
		return gobridge.RetryAfter(after, err)
	}
	return err
}

// parseRetryAfter reads a Retry-After header (RFC 9110, section 10.2.3): a
// number of seconds, or a date. A date in the past is no wait at all.
func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}

// sanitise makes a response body fit for a line of an error.
func sanitise(body []byte) string { return oneLine(body, shownBody) }

// oneLine makes one line of printable text, cut at limit bytes.
func oneLine(body []byte, limit int) string {
	cut := len(body) > limit
	if cut {
		body = body[:limit]
		// What the cut left of a character goes too.
		for range utf8.UTFMax - 1 {
			if r, size := utf8.DecodeLastRune(body); r != utf8.RuneError || size != 1 {
				break
			}
			body = body[:len(body)-1]
		}
	}
	text := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '.'
		}
		return r
	}, string(body))
	text = strings.Join(strings.Fields(text), " ")
	if cut {
		text += "..."
	}
	return text
}

// shortened is an error of the transport, which may repeat all that a
// destination sent instead of an answer.
type shortened struct{ err error }

func (e shortened) Error() string {
	if errors.Is(e.err, io.EOF) {
		return "the connection ended before there was an answer"
	}
	return oneLine([]byte(e.err.Error()), shownError)
}

func (e shortened) Unwrap() error { return e.err }

// shownLocation leaves out what may be secret in the target of a redirect.
func shownLocation(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return "a place that is no URL"
	}
	return shownURL(u)
}
