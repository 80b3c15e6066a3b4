package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Mechanism is a way to authenticate, by its name in SASL.
type Mechanism string

// The mechanisms.
const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	OAuthBearer Mechanism = "OAUTHBEARER"
)

// SASL says who to be. Secrets are read for each new connection.
type SASL struct {
	Mechanism Mechanism
	// Username goes with every mechanism but OAUTHBEARER.
	Username string
	// Secret gives the password, or the token of OAUTHBEARER. Its error must not
	// show it.
	Secret func() (string, error)
}

func (s *SASL) check() error {
	switch s.Mechanism {
	case Plain, ScramSHA256, ScramSHA512:
		if s.Username == "" {
			return fmt.Errorf("SASL %s needs a username", s.Mechanism)
		}
	case OAuthBearer:
		if s.Username != "" {
			return errors.New("SASL OAUTHBEARER has no username: the token says who it is")
		}
	default:
		return fmt.Errorf("SASL mechanism %q; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER", s.Mechanism)
	}
	if s.Secret == nil {
		return fmt.Errorf("SASL %s needs a secret", s.Mechanism)
	}
	return nil
}

// mechanism is what the client authenticates each connection with.
func (s *SASL) mechanism() sasl.Mechanism {
	secret := func() (string, error) {
		value, err := s.Secret()
		if err == nil && value == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return "", fmt.Errorf("read the secret of SASL %s: %w", s.Mechanism, err)
		}
		return value, nil
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := secret()
		return scram.Auth{User: s.Username, Pass: pass}, err
	}
	switch s.Mechanism {
	case ScramSHA256:
		return scram.Sha256(scramAuth)
	case ScramSHA512:
		return scram.Sha512(scramAuth)
	case OAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := secret()
			return oauth.Auth{Token: token}, err
		})
	default:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := secret()
			return plain.Auth{User: s.Username, Pass: pass}, err
		})
	}
}
