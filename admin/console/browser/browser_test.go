package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page of a browser. It fails the test when the page complains: an error in
// the console, or a script that throws.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	excused  []string
	reported []string
}

// chromiumPath is the browser: $CHROMIUM, or the one of Debian.
func chromiumPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	if path == "" {
		path = "/usr/bin/chromium"
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Chromium: %v; scripts/console-browser.sh installs it, or set $CHROMIUM", err)
	}
	return path
}

// newTab opens a browser of its own, with a profile of its own.
func newTab(w *world) *tab {
	w.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromiumPath(w.T)), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.DisableGPU, chromedp.NoSandbox,
		chromedp.UserDataDir(w.TempDir()), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(patience),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t := &tab{T: w.T, url: w.url}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(t.hear))
	t.ctx = ctx
	w.Cleanup(func() {
		t.mu.Lock()
		for _, text := range t.reported {
			t.Errorf("the page complains: %s", text)
		}
		t.mu.Unlock()
		cancel()
		stop()
	})
	// The first use starts the browser, which ends with its context.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	return t
}

// hear collects what the page complains of.
func (t *tab) hear(event any) {
	var text string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = fmt.Sprint(e.Entry.Text, " ", e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		text = fmt.Sprintf("%+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			for _, arg := range e.Args {
				text += string(arg.Value) + " "
			}
		}
	}
	if text == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range t.excused {
		if strings.Contains(text, known) {
			return
		}
	}
	t.reported = append(t.reported, text)
}

// excuse expects complaints that have text in them from now on.
func (t *tab) excuse(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excused = append(t.excused, text)
}

// do runs actions.
func (t *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatalf("%v\n%s", err, t.text())
	}
}

// text is what the page says.
func (t *tab) text() string {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	out, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
	return out
}

func (t *tab) open(path string) {
	t.Helper()
	t.do(chromedp.Navigate(t.url + path))
}

// login logs in and lands on a page.
func (t *tab) login(token, path string) {
	t.Helper()
	t.open(path)
	t.do(chromedp.SendKeys(chromedp.CSS("#by"), "ann"), chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"), chromedp.WaitReady(chromedp.CSS("#head")))
}

// sees waits until the page says something. Case and spaces do not matter.
func (t *tab) sees(texts ...string) {
	t.Helper()
	for _, text := range texts {
		t.until(fmt.Sprintf("says %q", text), `document.body.innerText.replace(/\s+/g, " ").toLowerCase().includes(`+quoted(strings.ToLower(text))+`)`)
	}
}

// until waits until a condition holds. It asks from outside, for the page's policy
// lets nobody evaluate anything inside.
func (t *tab) until(what, condition string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.body !== null && (`+condition+`)`))
		cancel()
		if err == nil && ok { // a page that is just being left has errors
			return
		}
	}
	t.Fatalf("it never %s:\n%s", what, t.text())
}

// quoted writes text for JavaScript.
func quoted(text string) string { return fmt.Sprintf("%q", text) }

// eval asks the page.
func eval[T any](t *tab, script string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// how a page is looked at.
type look struct {
	name        string
	width, high int64
	dark        bool
}

var looks = []look{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 375, 812, false}}

func (t *tab) as(l look) {
	t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	_, err1 := chromedp.Call(t.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: l.high, DeviceScaleFactor: 1, Mobile: l.width < 600,
	})
	_, err2 := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // no picture of a colour on its way to another
		},
	})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

// picture keeps one of the whole page, if pictures are wanted.
func (t *tab) picture(name string) {
	t.Helper()
	dir := os.Getenv("GOBRIDGE_CONSOLE_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(t.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
