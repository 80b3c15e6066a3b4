package fakedynamo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Server. The zero value is a server without faults, with the
// real clock.
type Options struct {
	// Now is the clock of TTL, request tokens and throughput; nil means time.Now.
	Now func() time.Time
	// PageBytes and PageItems cut the pages of Query and Scan shorter than the
	// 1 MB of DynamoDB; zero leaves them.
	PageBytes int
	PageItems int
	// Describes is how many DescribeTable calls a new table, a new index or a
	// deleted one takes until it has settled; zero means at once.
	Describes int
	// DescribeMisses is how many DescribeTable calls after CreateTable don't find
	// the table: they are eventually consistent.
	DescribeMisses int
	// Overlap lets transactions take time, so that those that meet conflict, and
	// lets Query, Scan and BatchGetItem see a part of one. Hooks.Prepared and
	// Hooks.Applied do the same at steered moments.
	Overlap bool
	// Log keeps every call for Calls.
	Log bool
}

// Server is a DynamoDB of its own, in memory. It is safe for concurrent use.
type Server struct {
	options     Options
	calls       atomic.Int64
	hooks       atomic.Pointer[Hooks]
	offset      atomic.Int64 // nanoseconds by which Advance has moved the clock
	expressions expressions

	mu         sync.Mutex
	tables     map[string]*table
	running    map[lockKey]*transaction
	tokens     map[string]*tokenState
	tokenOrder []string // oldest first
	throughput map[resource]Throughput
	meters     map[meterKey]float64
	metered    int64 // the second that the meters are of
	lagging    bool

	observed observed

	listen   sync.Once
	listener *httptest.Server
}

// New starts an empty server.
func New(options Options) *Server {
	s := &Server{options: options, tables: map[string]*table{}, running: map[lockKey]*transaction{},
		tokens: map[string]*tokenState{}, throughput: map[resource]Throughput{}, meters: map[meterKey]float64{}}
	s.observed.reset()
	return s
}

// URL is the endpoint over HTTP; the first call begins to listen on loopback.
func (s *Server) URL() string {
	s.listen.Do(func() { s.listener = httptest.NewServer(s) })
	return s.listener.URL
}

// Close stops listening, if URL was ever called.
func (s *Server) Close() {
	s.listen.Do(func() {})
	if s.listener != nil {
		s.listener.Close()
	}
}

func (s *Server) now() time.Time {
	now := time.Now
	if s.options.Now != nil {
		now = s.options.Now
	}
	return now().Add(time.Duration(s.offset.Load()))
}

// Advance moves the server's clock, forward or back.
func (s *Server) Advance(d time.Duration) { s.offset.Add(int64(d)) }

// targetPrefix comes before the operation in the header X-Amz-Target.
const targetPrefix = "DynamoDB_20120810."

// maxBody is the largest request that DynamoDB reads, with room for base64.
const maxBody = 24 << 20

// ServeHTTP answers one request. A lost answer is a connection that is cut.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	a := s.answer(r.Header, body)
	if a.cut {
		panic(http.ErrAbortHandler) // the documented way to cut a connection
	}
	for name, values := range a.header() {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that went away has no use for it
}

// answer is what one request comes to.
type answer struct {
	status int
	body   []byte
	cut    bool
}

func (s *Server) answer(header http.Header, body []byte) answer {
	c := &Call{N: s.calls.Add(1)}
	operation, ok := strings.CutPrefix(header.Get("X-Amz-Target"), targetPrefix)
	c.Operation = operation
	if header.Get("Authorization") == "" {
		return s.finish(c, nil, dynamoError("MissingAuthenticationTokenException", "Request must contain a valid (registered) AWS Access Key ID."))
	}
	make, known := operations[operation]
	if !ok || !known {
		return s.finish(c, nil, unsupported("operation %q", header.Get("X-Amz-Target")))
	}
	request := make()
	if err := decode(body, request); err != nil {
		return s.finish(c, nil, err)
	}
	hooks := s.hooks.Load()
	if hooks != nil || s.options.Log {
		s.describe(c, request)
	}
	if hooks != nil && hooks.Before != nil {
		c.fault = hooks.Before(c)
	}
	response, err := s.run(c, request)
	if hooks != nil && hooks.After != nil {
		hooks.After(c)
	}
	return s.finish(c, response, err)
}

func (s *Server) run(c *Call, r request) (any, error) {
	switch c.kind() {
	case CutBefore:
		return nil, nil
	case InternalError:
		return nil, internalError()
	case Unavailable:
		return nil, unavailable()
	}
	return r.run(s, c)
}

// finish records the call and makes the answer.
func (s *Server) finish(c *Call, response any, err error) answer {
	a := answer{status: http.StatusOK, cut: c.kind() == CutBefore || c.kind() == CutAfter}
	switch failed := (*apiError)(nil); {
	case errors.As(err, &failed):
		a.status, a.body = failed.status, failed.body()
		c.Error = failed.code
	case err != nil:
		a.status, a.body = http.StatusInternalServerError, internalError().body()
		c.Error = err.Error()
	default:
		if a.body, err = encode(response); err != nil {
			a.status, a.body = http.StatusInternalServerError, internalError().body()
			c.Error = err.Error()
		}
	}
	c.Cut = a.cut
	s.observed.record(c, s.options.Log)
	return a
}

// encode writes the answer. Those that hold many items write themselves:
// encoding/json would go over them twice.
func encode(response any) ([]byte, error) {
	if long, ok := response.(interface{ encode() ([]byte, error) }); ok {
		return long.encode()
	}
	return json.Marshal(response)
}

// decode reads the parameters; those that the fake doesn't know are refused.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var failed *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return failed
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return unsupported("the parameter %s", strings.TrimPrefix(err.Error(), "json: unknown field "))
	}
	return serialization(err.Error())
}

// request is a decoded request of one operation.
type request interface {
	run(s *Server, c *Call) (any, error)
	// touches adds the tables and keys that the request names.
	touches(add func(tableName, index string, key item))
}

var operations = map[string]func() request{
	"CreateTable":        func() request { return &createTable{} },
	"UpdateTable":        func() request { return &updateTable{} },
	"DescribeTable":      func() request { return &describeTable{} },
	"DeleteTable":        func() request { return &deleteTable{} },
	"ListTables":         func() request { return &listTables{} },
	"UpdateTimeToLive":   func() request { return &updateTimeToLive{} },
	"DescribeTimeToLive": func() request { return &describeTimeToLive{} },
	"PutItem":            func() request { return &putItem{} },
	"UpdateItem":         func() request { return &updateItem{} },
	"DeleteItem":         func() request { return &deleteItem{} },
	"GetItem":            func() request { return &getItem{} },
	"Query":              func() request { return &query{} },
	"Scan":               func() request { return &scan{} },
	"BatchGetItem":       func() request { return &batchGetItem{} },
	"BatchWriteItem":     func() request { return &batchWriteItem{} },
	"TransactWriteItems": func() request { return &transactWriteItems{} },
	"TransactGetItems":   func() request { return &transactGetItems{} },
}
