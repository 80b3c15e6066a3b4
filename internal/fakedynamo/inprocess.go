package fakedynamo

import (
	"bytes"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
)

// Endpoint is a base address for clients that use HTTPClient.
const Endpoint = "http://fakedynamo.invalid"

// HTTPClient answers in the caller's goroutine, without a socket. A lost answer
// is a connection reset.
func (s *Server) HTTPClient() *http.Client {
	return &http.Client{Transport: inProcess{s}}
}

type inProcess struct{ server *Server }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = readAll(r)
		if err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a := t.server.answer(r.Header, body)
	// A caller that gave up meanwhile doesn't see the answer, as on a socket.
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if a.cut {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return &http.Response{
		Status: strconv.Itoa(a.status) + " " + http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header(),
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}, nil
}

func readAll(r *http.Request) ([]byte, error) {
	defer r.Body.Close()
	if r.ContentLength <= 0 || r.ContentLength > maxBody {
		return io.ReadAll(io.LimitReader(r.Body, maxBody))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

func (a answer) header() http.Header {
	return http.Header{
		"Content-Type":     {"application/x-amz-json-1.0"},
		"Content-Length":   {strconv.Itoa(len(a.body))},
		"X-Amz-Crc32":      {strconv.FormatUint(uint64(crc32.ChecksumIEEE(a.body)), 10)},
		"X-Amzn-Requestid": {"FAKE"},
	}
}
