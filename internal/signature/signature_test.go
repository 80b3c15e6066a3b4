package signature_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"gobridge/internal/signature"
)

func secret(fill byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), 32)))
}

func keys(t *testing.T, secrets ...string) *signature.Keys {
	t.Helper()
	k, err := signature.New(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func signed(t *testing.T, k *signature.Keys, id string, at time.Time, payload string) http.Header {
	t.Helper()
	s, err := k.Sign(id, at, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set(signature.HeaderID, id)
	h.Set(signature.HeaderTimestamp, signature.Timestamp(at))
	h.Set(signature.HeaderSignature, s)
	return h
}

func TestLibraryVerifiesEachSecretOfARotation(t *testing.T) {
	h := signed(t, keys(t, secret('a'), secret('b')), "m1", time.Now(), "hello")
	for _, s := range []string{secret('a'), secret('b')} {
		hook, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify([]byte("hello"), h); err != nil {
			t.Errorf("receiver with one of the secrets: %v", err)
		}
	}
}

func TestVerify(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	sender := keys(t, secret('a'))
	receiver := keys(t, "", secret('b'), secret('a'))
	for _, c := range []struct {
		name    string
		at      time.Time
		change  func(http.Header)
		payload string
		ok      bool
	}{
		{name: "good", at: now, ok: true},
		{name: "edge of the window", at: now.Add(-5 * time.Minute), ok: true},
		{name: "too old", at: now.Add(-5*time.Minute - time.Second)},
		{name: "too new", at: now.Add(5*time.Minute + time.Second)},
		{name: "far from any clock", at: now, change: func(h http.Header) { h.Set(signature.HeaderTimestamp, "-9223372036854775808") }},
		{name: "other payload", at: now, payload: "hullo"},
		{name: "other ID", at: now, change: func(h http.Header) { h.Set(signature.HeaderID, "m2") }},
		{name: "no ID", at: now, change: func(h http.Header) { h.Del(signature.HeaderID) }},
		{name: "two IDs", at: now, change: func(h http.Header) { h.Add(signature.HeaderID, "m1") }},
		{name: "dotted ID", at: now, change: func(h http.Header) { h.Set(signature.HeaderID, "m.1") }},
		{name: "plus sign", at: now, change: func(h http.Header) { h.Set(signature.HeaderTimestamp, "+1800000000") }},
		{name: "no number", at: now, change: func(h http.Header) { h.Set(signature.HeaderTimestamp, "now") }},
		{name: "other version", at: now, change: func(h http.Header) {
			h.Set(signature.HeaderSignature, "v2"+strings.TrimPrefix(h.Get(signature.HeaderSignature), "v1"))
		}},
		{name: "one good signature among others", at: now, ok: true, change: func(h http.Header) {
			h.Set(signature.HeaderSignature, "v1,AAAA v1a,x "+h.Get(signature.HeaderSignature))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := signed(t, sender, "m1", c.at, "hello")
			if c.change != nil {
				c.change(h)
			}
			payload := "hello"
			if c.payload != "" {
				payload = c.payload
			}
			err := receiver.Verify(h, []byte(payload), now, 5*time.Minute)
			if (err == nil) != c.ok {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}

func TestSecretsAreChecked(t *testing.T) {
	for _, bad := range [][]string{nil, {""}, {"", ""}, {"tooshort"}, {"not base64, but topsecret"}} {
		_, err := signature.New(bad)
		if err == nil {
			t.Errorf("New(%q) took it", bad)
			continue
		}
		if len(bad) > 0 && bad[0] != "" && strings.Contains(err.Error(), bad[0]) {
			t.Errorf("the error gives the secret away: %v", err)
		}
	}
}

func TestSignRefusesADottedID(t *testing.T) {
	if _, err := keys(t, secret('a')).Sign("a.b", time.Now(), nil); err == nil {
		t.Error("signed an ID that could be read as another ID, time and payload")
	}
}
