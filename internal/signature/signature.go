// Package signature signs and verifies HTTP messages as Standard Webhooks has
// it (specification 1.0.0, "Verifying webhook authenticity"), with several
// secrets for rotation and a clock and window of the caller's choice. The
// cryptography is that of the specification's own library.
package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The names of the headers, in the canonical form of net/http.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// The size of a secret, in bytes, that the specification asks for.
const (
	minSecret = 24
	maxSecret = 64
)

// Keys are the secrets in force.
type Keys struct {
	hooks []*standardwebhooks.Webhook
}

// New takes the secrets in their usual form: base64, with or without the prefix
// "whsec_". Empty ones are left out, so that a list may name the secret of a
// rotation that is not under way; no secret at all is an error. No error has a
// secret in its text.
func New(secrets []string) (*Keys, error) {
	keys := &Keys{}
	for i, secret := range secrets {
		if secret == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return nil, fmt.Errorf("secret %d is not base64, with or without the prefix whsec_: %w", i+1, err)
		}
		if len(raw) < minSecret || len(raw) > maxSecret {
			return nil, fmt.Errorf("secret %d has %d bytes; a secret is the base64 of %d to %d bytes, "+
				"as `openssl rand -base64 32` makes it", i+1, len(raw), minSecret, maxSecret)
		}
		hook, err := standardwebhooks.NewWebhookRaw(raw)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		keys.hooks = append(keys.hooks, hook)
	}
	if len(keys.hooks) == 0 {
		return nil, errors.New("no secret given, or only empty ones")
	}
	return keys, nil
}

// Sign returns the signature header of a message: one signature for each
// secret. The ID must have no '.', which separates the parts of what is signed.
func (k *Keys) Sign(id string, at time.Time, payload []byte) (string, error) {
	if strings.Contains(id, ".") {
		return "", errDot
	}
	if len(k.hooks) == 1 {
		return k.hooks[0].Sign(id, at, payload)
	}
	signatures := make([]string, len(k.hooks))
	for i, hook := range k.hooks {
		var err error
		if signatures[i], err = hook.Sign(id, at, payload); err != nil {
			return "", err
		}
	}
	return strings.Join(signatures, " "), nil
}

// Timestamp returns the timestamp header.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

var (
	errDot   = errors.New("webhook-id has a '.', which the signature can't tell from its own separators")
	errTime  = errors.New("webhook-timestamp is not a number of seconds since 1970")
	errNone  = errors.New("webhook-signature has no signature that matches")
	errStale = errors.New("webhook-timestamp is too far from the present")
)

// Verify checks that one of the secrets signed the message and that its
// timestamp is within the window on either side of now. Each of the three
// headers must stand there once.
func (k *Keys) Verify(header http.Header, payload []byte, now time.Time, window time.Duration) error {
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		if len(header[name]) != 1 || header[name][0] == "" {
			return fmt.Errorf("header %s must be there once", strings.ToLower(name))
		}
	}
	if strings.Contains(header[HeaderID][0], ".") {
		return errDot
	}
	// The library would take "+1" and "01" as well, which sign as another text.
	seconds, err := strconv.ParseInt(header[HeaderTimestamp][0], 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != header[HeaderTimestamp][0] {
		return errTime
	}
	if off := now.Unix() - seconds; off > int64(window/time.Second) || off < -int64(window/time.Second) {
		return errStale
	}
	for _, hook := range k.hooks {
		// The library's own window is fixed, and measured by the machine's clock.
		if hook.VerifyIgnoringTimestamp(payload, header) == nil {
			return nil
		}
	}
	return errNone
}
