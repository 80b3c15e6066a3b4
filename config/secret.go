package config

import "log/slog"

// redacted is what stands for a secret wherever values are shown.
const redacted = "[secret]"

// Secret is a value that must not be seen: no way of printing, logging or
// encoding it shows it. [Secret.Reveal] does.
type Secret struct {
	// A function, for fmt and reflection print the fields of a struct.
	reveal func() string
	again  func() (string, error)
}

// NewSecret keeps a value secret.
func NewSecret(value string) Secret { return Secret{reveal: func() string { return value }} }

// Reveal returns the value.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// Again reads the value anew from where the file takes it, so that a secret which
// has been changed in its file (${file:PATH}) is taken up without a restart. Its
// error does not show the value.
func (s Secret) Again() (string, error) {
	if s.again == nil {
		return s.Reveal(), nil
	}
	return s.again()
}

// String hides the value.
func (s Secret) String() string { return redacted }

// GoString hides the value.
func (s Secret) GoString() string { return redacted }

// MarshalText hides the value, in JSON too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalYAML hides the value.
func (s Secret) MarshalYAML() (any, error) { return redacted, nil }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

//nolint:unparam // as every scalar's
func (s *Secret) parse(text string) error {
	*s = NewSecret(text)
	return nil
}

func (Secret) kind() kind {
	return kind{
		Name:       "secret",
		Doc:        "A string that is never shown. Take it from outside: ${file:PATH} or ${NAME}.",
		Hint:       "put it in quotes, or take it from outside with ${file:PATH} or ${NAME}",
		Secret:     true,
		mayBeEmpty: true,
	}
}
