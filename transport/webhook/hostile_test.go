package webhook_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gobridge"
	"gobridge/transport/webhook"
)

// answering serves connections with bytes of its own, and no HTTP of net/http's.
// The answer is given what is to be written to.
func answering(t *testing.T, answer func(io.Writer)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, request.Body)
				answer(conn)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return "http://" + listener.Addr().String() + "/hook"
}

// flood writes a text until nobody takes it any more.
func flood(w io.Writer, text string) {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func TestAnswersThatAreNoneOrTooMuch(t *testing.T) {
	says := func(text string) func(io.Writer) {
		return func(w io.Writer) { _, _ = io.WriteString(w, text) }
	}
	for name, tt := range map[string]struct {
		answer  func(io.Writer)
		outcome gobridge.Outcome
		want    string
	}{
		"nothing":              {says(""), gobridge.OutcomeTransient, "ended before there was an answer"},
		"another protocol":     {says("SSH-2.0-OpenSSH\r\n"), gobridge.OutcomeTransient, "malformed HTTP"},
		"HTTP/2":               {says("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00d"), gobridge.OutcomeTransient, "malformed HTTP"},
		"a long line":          {says("\x1b[31m" + strings.Repeat("z", 60_000) + "\r\n\r\n"), gobridge.OutcomeTransient, "malformed HTTP"},
		"two lengths":          {says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), gobridge.OutcomeTransient, "Content-Length"},
		"protocol switched":    {says("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), gobridge.OutcomeUnavailable, "101"},
		"a status of its own":  {says("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), gobridge.OutcomeTransient, "999"},
		"redirect to a file":   {says("HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"), gobridge.OutcomeUnavailable, "redirects are not followed"},
		"redirect with a page": {says("HTTP/1.1 302 Found\r\nLocation: http://h/" + strings.Repeat("a", 9000) + "\r\nContent-Length: 0\r\n\r\n"), gobridge.OutcomeUnavailable, "http://h/aaa"},
		"interim answers":      {func(w io.Writer) { flood(w, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") }, gobridge.OutcomeTransient, "headers exceeded"},
		"headers":              {func(w io.Writer) { _, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n"); flood(w, "X: y\r\n") }, gobridge.OutcomeTransient, "headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sender(t, webhook.Options{URL: answering(t, tt.answer), Timeout: time.Minute})
			err := send(t, s, delivery())
			if err == nil {
				t.Fatal("taken for a success")
			}
			if outcome, _ := gobridge.Classify(err); outcome != tt.outcome || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("outcome %v of %v", outcome, err)
			}
			if text := err.Error(); len(text) > 1200 || strings.ContainsAny(text, "\x1b\r\n") {
				t.Errorf("error has %d bytes: %.300q", len(text), text)
			}
		})
	}
}

// A success that is followed by nonsense is one: the status is the answer.
func TestSuccessesWithOddBodies(t *testing.T) {
	for name, text := range map[string]string{
		"short body":      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"broken chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"trailers":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Length: 9\r\n\r\n",
		"body with a 204": "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			s := sender(t, webhook.Options{URL: answering(t, func(w io.Writer) { _, _ = io.WriteString(w, text) })})
			if err := send(t, s, delivery()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoHTTPSThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s := sender(t, webhook.Options{URL: "https://" + listener.Addr().String() + "/", Timeout: 100 * time.Millisecond})
	err = send(t, s, delivery())
	if outcome, _ := gobridge.Classify(err); outcome != gobridge.OutcomeUnavailable || !strings.Contains(err.Error(), "no answer in 50ms; is it https") {
		t.Errorf("outcome %v of %v", outcome, err)
	}
}

func TestURLIsShownAsTold(t *testing.T) {
	target := answering(t, func(io.Writer) {})
	err := send(t, sender(t, webhook.Options{URL: target, Shown: "http://h/..."}), delivery())
	if err == nil || !strings.Contains(err.Error(), "post to http://h/...: ") || strings.Contains(err.Error(), "/hook") {
		t.Errorf("error is %v", err)
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("what lies behind %v can't be found", err)
	}
}
