package httpsource

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTroubleThatGoesOnIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var tr trouble
		for range 100 {
			tr.log(t.Context(), log, slog.LevelError, "message not stored")
		}
		if n := strings.Count(out.String(), "\n"); n != 1 {
			t.Fatalf("%d lines at once, want one", n)
		}
		time.Sleep(quietFor)
		tr.log(t.Context(), log, slog.LevelError, "message not stored")
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.Contains(out.String(), "more_like_this=99") {
			t.Fatalf("after a while the log is\n%s", out.String())
		}
	})
}

func TestOperatorsAreToldWhenConnectionsAreNotTaken(t *testing.T) {
	var out bytes.Buffer
	s, err := New(Options{Address: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.server.ErrorLog.Print("http: TLS handshake error from 127.0.0.1:5: EOF")
	if out.Len() > 0 {
		t.Errorf("a client's doing is logged: %s", out.String())
	}
	for range 10 {
		s.server.ErrorLog.Print("http: Accept error: accept tcp 127.0.0.1:80: accept4: too many open files; retrying in 5ms")
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "too many open files") {
		t.Errorf("the log is %s", text)
	}
}
