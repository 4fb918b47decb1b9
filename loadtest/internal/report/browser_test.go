package report

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser returns a context for a tab of a headless Chromium, and what went
// wrong in its console so far.
func browser(t *testing.T) (ctx context.Context, failures func() []string) {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Fatal("chromium is not installed. As root: scripts/deps $(cat loadtest/debian-packages)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1400, 1000))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var all []string
	err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			all = append(all, fmt.Sprint(e.Type))
		case *runtime.EventExceptionThrown:
			all = append(all, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			all = append(all, e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// do runs an action in the tab and returns what it yields.
func do[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPage opens the report in a browser. SCREENSHOT=file.png keeps a picture.
func TestPage(t *testing.T) {
	var page bytes.Buffer
	if err := sample().HTML(&page); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("the page asks for %s", r.URL)
		}
		_, _ = w.Write(page.Bytes()) // a failure shows in the page
	}))
	defer server.Close()
	ctx, failures := browser(t)

	const (
		charts = `[...document.querySelectorAll("svg")].filter(s => { const b = s.getBoundingClientRect(); return b.width > 300 && b.height > 60; }).length`
		lines  = `[...document.querySelectorAll("svg path.line")].filter(p => p.getTotalLength() > 100).length`
		bars   = `document.querySelectorAll("svg rect[height='13']").length`
		marks  = `document.querySelectorAll("svg .marked").length`
		beyond = `[...document.querySelectorAll("svg :not(title)")].filter(e => { const b = e.getBoundingClientRect(), s = e.closest("svg").getBoundingClientRect(); return b.right > s.right + 1 || b.left < s.left - 1 || b.bottom > s.bottom + 1 || b.top < s.top - 1; }).map(e => e.outerHTML).join("\n")`
		wide   = `document.documentElement.scrollWidth > document.documentElement.clientWidth`
		hidden = `document.querySelectorAll(".off").length`
		click  = `document.querySelector("[data-toggle='0']").click()`
	)
	do(t, ctx, chromedp.Navigate(server.URL))
	if path := os.Getenv("SCREENSHOT"); path != "" {
		if err := os.WriteFile(path, do(t, ctx, chromedp.FullScreenshot(100)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// 6 charts in the scene with failures and 5 in the other; a line for each
	// contender in each chart over quantiles or time; a bar for the rate and
	// three for the cost; 2 marks in each chart over time.
	for what, want := range map[string]int{charts: 11, lines: 4*4 + 3*2, bars: 6 * 4, marks: 2*3 + 2*2} {
		if got := do(t, ctx, chromedp.Evaluate[int](what)); got != want {
			t.Errorf("%d, want %d of %s", got, want, what)
		}
	}
	if out := do(t, ctx, chromedp.Evaluate[string](beyond)); out != "" {
		t.Errorf("beyond their charts:\n%s", out)
	}
	if do(t, ctx, chromedp.Evaluate[bool](wide)) {
		t.Error("the page is wider than the window")
	}
	do(t, ctx, chromedp.Evaluate[chromedp.Void](click))
	if do(t, ctx, chromedp.Evaluate[int](hidden)) == 0 {
		t.Error("a click on the legend hides nothing")
	}
	do(t, ctx, chromedp.Evaluate[chromedp.Void](click))
	if n := do(t, ctx, chromedp.Evaluate[int](hidden)); n != 0 {
		t.Errorf("another click leaves %d elements hidden", n)
	}
	if f := failures(); len(f) > 0 {
		t.Errorf("console: %v", f)
	}
}
