package browser

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// pages are the addresses of pages, by the names of their pictures.
type pages map[string]string

// every lists the pages that are always there, and more.
func every(more pages) pages {
	all := pages{
		"overview": "/", "binding": "/binding?target=orders%2Fcrm", "keys": "/keys", "dead": "/dead", "holds": "/holds",
		"partitions": "/partitions", "audit": "/audit", "config": "/config", "help": "/help", "explain": "/explain",
	}
	for name, path := range more {
		all[name] = path
	}
	return all
}

// TestEveryPage opens every page in every look: none complains, none has to be
// scrolled sideways, and the dark ones are dark.
func TestEveryPage(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		token   string
		pages   pages
	}{
		"empty": {func(*world) {}, operateToken, every(nil)},
		"read":  {(*world).trouble, readToken, pages{"overview": "/", "dead": "/dead?target=telemetry%2Flake", "record": "/record?target=telemetry%2Flake&id=tel-00003", "act": "/act?do=pause&target=orders"}},
		"trouble": {(*world).trouble, operateToken, every(pages{
			"dead": "/dead?target=telemetry%2Flake&error=kafka*&after=2h", "explain": "/explain?q=cust-7", "record": "/record?target=telemetry%2Flake&id=tel-00003",
			"redrive": "/act?do=redrive&target=telemetry%2Flake", "discard": "/act?do=discard&target=orders%2Fbilling&id=bill-0-00003",
			"pause": "/act?do=pause&target=orders", "halt": "/act?do=halt&target=orders%2Fcrm", "missing": "/binding?target=a%2Fb",
		})},
		"full": {(*world).fullNight, operateToken, every(pages{"dead": "/dead?target=telemetry%2Flake", "redrive": "/act?do=redrive&target=telemetry%2Flake"})},
	} {
		t.Run(name, func(t *testing.T) {
			var ahead atomic.Int64
			w := newWorld(t, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
			c.prepare(w)
			b := newTab(w)
			b.excuse("status of 404") // the page that is missing
			b.excuse("status of 403") // the act of one who may not
			b.open("/")
			b.inEveryLook(name, "login")
			b.login(c.token, "/")
			if name == "full" {
				// Some looks at traffic, as if they were minutes, for the charts.
				for round := range 24 {
					ahead.Add(int64(16 * time.Second))
					w.traffic(round)
					clock := eval[string](b, `document.querySelector(".clock time").innerText`)
					b.until("goes on", `document.querySelector(".clock time").innerText !== `+strconv.Quote(clock))
				}
			}
			for page, path := range c.pages {
				b.open(path)
				b.inEveryLook(name, page)
			}
		})
	}
}

func (t *tab) inEveryLook(state, page string) {
	t.Helper()
	for _, l := range looks {
		t.as(l)
		t.picture(fmt.Sprintf("%s-%s-%s", state, page, l.name))
		if wide := eval[int](t, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
			t.Errorf("%s, %s in the look %s is %d px too wide", state, page, l.name, wide)
		}
		if back := eval[string](t, "getComputedStyle(document.documentElement).backgroundColor"); (back == "rgb(16, 19, 23)") != l.dark {
			t.Errorf("%s, %s in the look %s stands on %s", state, page, l.name, back)
		}
	}
}
