package fakeaws

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Account and Region are those of every queue and topic.
const (
	Account = "123456789012"
	Region  = "eu-central-1"
)

// maxRequest bounds a request, in bytes.
const maxRequest = 8 << 20

// Server is the fake. Its methods may be called concurrently.
type Server struct {
	http *httptest.Server
	done chan struct{}

	mu      sync.Mutex
	queues  map[string]*queue
	topics  map[string]*topic // by ARN
	keys    []string
	onCall  func(Call) Fault
	calls   map[string]int
	random  *rand.Rand
	serial  int
	changed chan struct{} // closed when there may be something to receive
	shift   time.Duration
}

// Call is a request.
type Call struct {
	// Action is what is asked for, as "SendMessageBatch".
	Action string
	// N counts the calls of the action, from 1.
	N int
	// Entries are the entries of a batch.
	Entries []Entry
}

// Entry is one of a batch: its ID, and the body of the message or its receipt handle.
type Entry struct{ ID, Body string }

// Fault is what goes wrong with a call. The zero value is nothing.
type Fault struct {
	// Code, unless empty, is the error that the call ends with, Status its HTTP
	// status (400 when zero).
	Code   string
	Status int
	// Entries, unless nil, gives entries that fail: a code, and whether the sender
	// is to blame. An empty code is no failure.
	Entries func(Entry) (code string, sender bool)
	// Lose makes the connection break when all has been done.
	Lose bool
	// Wait, unless nil, is waited for before anything is done.
	Wait <-chan struct{}
}

// Start runs a server on a free port of loopback. Close it.
func Start() *Server {
	s := &Server{
		done: make(chan struct{}), queues: map[string]*queue{}, topics: map[string]*topic{}, calls: map[string]int{},
		random: rand.New(rand.NewPCG(1, 2)), changed: make(chan struct{}), //nolint:gosec // for order, not for secrets
	}
	s.http = httptest.NewServer(s)
	return s
}

// URL is the endpoint.
func (s *Server) URL() string { return s.http.URL }

// Addr is host and port of the endpoint.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// Close ends the server and all requests.
func (s *Server) Close() {
	close(s.done)
	s.http.CloseClientConnections()
	s.http.Close()
}

// OnCall sets what says how each call goes wrong; nil for none. It is called with
// the server locked.
func (s *Server) OnCall(f func(Call) Fault) { s.locked(func() { s.onCall = f }) }

// Allow makes the access keys the only ones that are taken.
func (s *Server) Allow(keys ...string) { s.locked(func() { s.keys = keys }) }

// Calls returns how often an action was called.
func (s *Server) Calls(action string) (n int) {
	s.locked(func() { n = s.calls[action] })
	return n
}

// Advance lets time pass.
func (s *Server) Advance(d time.Duration) {
	s.locked(func() { s.shift += d })
	s.wake()
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *Server) now() time.Time { return time.Now().Add(s.shift) }

// wake wakes all who wait for messages.
func (s *Server) wake() {
	s.locked(func() {
		close(s.changed)
		s.changed = make(chan struct{})
	})
}

// failure is an error as AWS gives it.
type failure struct {
	status  int
	code    string
	message string
}

func refuse(code, format string, args ...any) *failure {
	return &failure{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

var credential = regexp.MustCompile(`Credential=([^/]+)/`)

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	target, isJSON := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	var form url.Values
	if !isJSON {
		form, _ = url.ParseQuery(string(body))
		target = form.Get("Action")
	}
	var fail *failure
	switch {
	case len(body) > maxRequest:
		fail = refuse("RequestEntityTooLarge", "the request is too large")
	case !utf8.Valid(body):
		fail = refuse("SerializationException", "the request is no UTF-8")
	default:
		fail = s.authorise(r)
	}
	var out any
	var fault Fault
	if fail == nil {
		if isJSON {
			out, fault, fail = s.sqs(ctx, target, body)
		} else {
			out, fault, fail = s.sns(ctx, target, form)
		}
	}
	switch {
	case fault.Lose || ctx.Err() != nil:
		panic(http.ErrAbortHandler)
	case isJSON:
		answerJSON(w, out, fail)
	default:
		answerXML(w, target, out, fail)
	}
}

func (s *Server) authorise(r *http.Request) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := credential.FindStringSubmatch(r.Header.Get("Authorization"))
	switch {
	case found == nil:
		return &failure{http.StatusForbidden, "MissingAuthenticationToken", "the request is not signed"}
	case s.keys != nil && !slices.Contains(s.keys, found[1]):
		return &failure{http.StatusForbidden, "InvalidClientTokenId", "the security token included in the request is invalid"}
	}
	return nil
}

// begin counts a call and waits for what it is to wait for.
func (s *Server) begin(ctx context.Context, action string, entries []Entry) (Fault, *failure) {
	var fault Fault
	s.locked(func() {
		s.calls[action]++
		if s.onCall != nil {
			fault = s.onCall(Call{Action: action, N: s.calls[action], Entries: entries})
		}
	})
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-ctx.Done():
		}
	}
	if fault.Code == "" {
		return fault, nil
	}
	status := fault.Status
	if status == 0 {
		status = http.StatusBadRequest
	}
	return fault, &failure{status, fault.Code, "as the test has it"}
}

func answerJSON(w http.ResponseWriter, out any, fail *failure) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if fail != nil {
		w.Header().Set("X-Amzn-Query-Error", fail.code+";Sender")
		w.WriteHeader(fail.status)
		out = map[string]string{"__type": "com.amazonaws.sqs#" + fail.code, "message": fail.message}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// Queues returns the names of the queues.
func (s *Server) Queues() (names []string) {
	s.locked(func() { names = slices.Sorted(maps.Keys(s.queues)) })
	return names
}
