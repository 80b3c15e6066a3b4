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
