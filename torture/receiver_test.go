package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// mood is how the webhook server behaves for a while.
type mood uint8

const (
	calm      mood = iota
	erring         // some requests are answered 500
	dropping       // some connections are closed without an answer, the message not taken
	forgetful      // some messages are taken, and the answer is lost
	slow           // some requests get no answer until the sender gives up
	busy           // 429 with Retry-After
	denying        // 401 to everyone
	moods
)

// moodLength is how long a mood lasts.
const moodLength = 150 * time.Millisecond

// receiver is the destination of the webhook binding.
type receiver struct {
	history *history
	server  *httptest.Server
	calmed  atomic.Bool // no more faults
	plan    []mood      // one after the other, over and over
	dice    chan uint32 // for each request
}

// newReceiver starts a webhook server that is in a mood now and then.
func newReceiver(t *testing.T, h *history, seed uint64) *receiver {
	r := &receiver{history: h, dice: make(chan uint32, 1)}
	rng := random(seed, 2)
	for range 64 {
		m := calm
		if rng.IntN(2) == 0 {
			m = mood(rng.IntN(int(moods)))
		}
		r.plan = append(r.plan, m)
	}
	quit := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case r.dice <- rng.Uint32():
			case <-quit:
				return
			}
		}
	}()
	r.server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
		close(quit)
		<-done
	})
	return r
}

func (r *receiver) mood() mood {
	if r.calmed.Load() {
		return calm
	}
	return r.plan[int(time.Since(r.history.start)/moodLength)%len(r.plan)]
}

// ServeHTTP records what arrives and answers as the mood has it.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // cut off in the middle: nothing has arrived
	}
	e := event{kind: arrived, binding: "hook", digest: digest(body)}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		e.note = err.Error()
	}
	e.id, e.key, e.seq = m.ID, m.Key, m.Seq
	e.attempt, _ = strconv.Atoi(request.Header.Get(headerAttempt))
	e.partition = request.Header.Get(headerPartition)
	e.version, _ = strconv.ParseInt(request.Header.Get(headerVersion), 10, 64)
	e.note += fmt.Sprintf("(of %s, token version %d)", e.partition, e.version)
	now, hit := r.mood(), <-r.dice%3 == 0
	e.taken = now == calm || now == forgetful || !hit && now != denying && now != busy
	r.history.add(e)
	switch {
	case now == denying:
		w.WriteHeader(http.StatusUnauthorized)
	case now == busy:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case !hit || now == calm:
		w.WriteHeader(http.StatusNoContent)
	case now == erring:
		w.WriteHeader(http.StatusInternalServerError)
	case now == slow:
		select {
		case <-request.Context().Done():
		case <-time.After(5 * time.Second):
		}
		panic(http.ErrAbortHandler)
	default: // dropping, forgetful
		panic(http.ErrAbortHandler)
	}
}
