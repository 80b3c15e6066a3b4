package protocol

import (
	"fmt"
	"math/bits"
	"strings"
)

// kind is what happens in a step.
type kind uint8

const (
	_ kind = iota
	persistAll
	allocate
	put
	ghostLands
	ghostLost
	expiry
	acquire
	renewAnswer
	drop
	claimAll
	claimBegins
	read
	lookUp
	write
	sendBegins
	sendDone
	settle
	due
	redriveTx
	redriven
	lastProgress

	persistLost
	crashCall
	crashPut
	cutOff
	cutOffBlind
	acquireLost
	renew
	crash
	leave
	claimLost
	writeLost
	conflict
	sendUnsure
	sendFails
	sendHopeless
	settleLost
	redriveBegins
	lastKind
)

// progress implements model.
func (w *world) progress(s step) bool { return s.kind < lastProgress }

// say sets the step in words, if anybody listens.
func (w *world) say(format string, args ...any) {
	if w.telling {
		w.told = fmt.Sprintf(format, args...)
	}
}

// wrong says what is wrong with the step. Only the first counts.
func (w *world) wrong(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// tell returns the steps from the start in words.
func (w *world) tell(way []step) []string {
	w.telling = true
	defer func() { w.telling = false }()
	s := w.start()
	var out []string
	for _, wanted := range way {
		var after state
		w.next(&s, func(by step, n *state, _ string) {
			if by == wanted {
				after = *n
				out = append(out, w.told)
			}
		})
		s = after
	}
	return out
}

func name(i int) string { return string(rune('A' + i)) }

func names(s set) string {
	if s == 0 {
		return "nothing"
	}
	var out []string
	for i := range maxRecords {
		if s.has(i) {
			out = append(out, name(i))
		}
	}
	return strings.Join(out, " and ")
}

func (s set) len() int { return bits.OnesCount8(uint8(s)) }

func (s *state) ownerName(o int) string { return ownerNames[s.names[o]] }

var ownerNames = [maxOwners]string{"owner 1", "owner 2"}

// callName is "call 1 (AB)".
func (w *world) callName(c int) string { return w.callNames[c] }

func (l local) String() string {
	switch l {
	case toEnd:
		return "completes"
	case toBack:
		return "releases"
	case toDelay:
		return "releases, not due yet,"
	case toBury:
		return "dead-letters"
	}
	return "holds"
}
