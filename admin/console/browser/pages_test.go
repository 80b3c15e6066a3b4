package browser

import (
	"fmt"
	"testing"
)

var everyPage = map[string]string{
	"overview": "/", "binding": "/binding?target=orders%2Fcrm", "keys": "/keys", "dead": "/dead", "holds": "/holds",
	"partitions": "/partitions", "audit": "/audit", "config": "/config", "help": "/help", "explain": "/explain",
}

var troublePages = map[string]string{
	"overview": "/", "binding": "/binding?target=orders%2Fcrm", "keys": "/keys", "dead": "/dead?target=telemetry%2Flake", "holds": "/holds",
	"partitions": "/partitions", "audit": "/audit", "explain": "/explain?q=cust-7", "record": "/record?target=telemetry%2Flake&id=tel-00003",
	"redrive": "/act?do=redrive&target=telemetry%2Flake", "discard": "/act?do=discard&target=orders%2Fbilling&id=bill-0-00003", "missing": "/binding?target=a%2Fb",
}

// TestEveryPage opens every page in every look: none complains, and none has to be
// scrolled sideways.
func TestEveryPage(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		pages   map[string]string
	}{
		"empty":   {func(*world) {}, everyPage},
		"trouble": {(*world).trouble, troublePages},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.prepare(w)
			b := newTab(w)
			b.excuse("status of 404") // the page that is missing
			b.login(operateToken, "/")
			for page, path := range c.pages {
				for _, l := range looks {
					b.as(l)
					b.open(path)
					b.picture(fmt.Sprintf("%s-%s-%s", name, page, l.name))
					if wide := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
						t.Errorf("%s in the look %s is %d px too wide", page, l.name, wide)
					}
				}
			}
		})
	}
}
