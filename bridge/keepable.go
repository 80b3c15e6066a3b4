package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gobridge"
	"gobridge/messaging"
)

// HeaderCut stands with a rejected message of which the store could not hold
// everything: it says what is missing.
const HeaderCut = "gobridge-cut"

// keepable returns a rejected message as the store can hold it, with as much of it
// as fits, and the hash of the whole.
func (s *setup) keepable(in *messaging.Envelope) (messaging.Envelope, messaging.Hash) {
	hash := messaging.ContentHash(in)
	limits := s.bridge.store.Limits()
	e := *in
	if e.ID == "" {
		e.ID = messaging.NewID()
	}
	e.CreatedAt, e.NotBefore, e.ExpiresAt = time.Time{}, time.Time{}, time.Time{} // it is not delivered, and need not expire
	if limits.CheckEnvelope(&e) == nil && s.fitsCall(&e, limits) {
		return e, hash
	}
	var cut []string
	text := func(what string, s *string, limit int) {
		if limit > 0 && len(*s) > limit {
			cut = append(cut, fmt.Sprintf("%s of %d bytes", what, len(*s)))
			*s = (*s)[:limit]
		}
	}
	if limits.MaxID > 0 && len(e.ID) > limits.MaxID {
		sum := sha256.Sum256([]byte(e.ID))
		cut = append(cut, fmt.Sprintf("ID of %d bytes", len(e.ID)))
		e.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	text("subject", &e.Subject, limits.MaxSubject)
	text("ordering key", &e.OrderingKey, limits.MaxKey)
	text("content type", &e.ContentType, limits.MaxContentType)
	e.Headers = keepHeaders(in.Headers, limits, &cut)
	room := limits.MaxPayload
	shrink := func(limit int) {
		if limit > 0 && (room == 0 || limit < room) {
			room = max(limit, 1)
		}
	}
	beside := gobridge.EnvelopeSize(&e) - len(e.Payload) + maxCut + len(HeaderCut)
	shrink(limits.MaxEnvelope - beside)
	if limits.MaxCallBytes > 0 {
		shrink(int(limits.MaxCallBytes/int64(len(s.outlets))) - beside)
	}
	if room > 0 && len(e.Payload) > room {
		cut = append(cut, fmt.Sprintf("payload of %d bytes", len(e.Payload)))
		e.Payload = e.Payload[:room]
	}
	if len(cut) > 0 {
		note := strings.Join(cut, ", ")
		e.Headers[HeaderCut] = note[:min(len(note), maxCut)]
	}
	return e, hash
}

// maxCut bounds the text of HeaderCut, in bytes.
const maxCut = 256

func (s *setup) fitsCall(e *messaging.Envelope, limits gobridge.Limits) bool {
	return limits.MaxCallBytes <= 0 || int64(gobridge.EnvelopeSize(e))*int64(len(s.outlets)) <= limits.MaxCallBytes
}

// keepHeaders returns the headers that the store can hold, in ascending order of
// names, with room for the one that says what is missing.
func keepHeaders(in messaging.Headers, limits gobridge.Limits, cut *[]string) messaging.Headers {
	out := messaging.Headers{}
	size, left := 0, 0
	for _, name := range slices.Sorted(maps.Keys(in)) {
		n := len(name) + len(in[name])
		tooMany := limits.MaxHeaders > 0 && len(out)+1 >= limits.MaxHeaders
		tooLong := limits.MaxHeaderBytes > 0 && size+n+maxCut+len(HeaderCut) > limits.MaxHeaderBytes
		if name == "" || strings.EqualFold(name, messaging.HeaderOrderingKey) || tooMany || tooLong {
			left++
			continue
		}
		out[name] = in[name]
		size += n
	}
	if left > 0 {
		*cut = append(*cut, fmt.Sprintf("%d of %d headers", left, len(in)))
	}
	return out
}
