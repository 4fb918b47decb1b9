package report

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
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

// open serves the page of a report and opens it in the tab.
func open(t *testing.T, ctx context.Context, r *Report) {
	t.Helper()
	var page bytes.Buffer
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("the page asks for %s", r.URL)
		}
		_, _ = w.Write(page.Bytes()) // a failure shows in the page
	}))
	t.Cleanup(server.Close)
	do(t, ctx, chromedp.Navigate(server.URL))
}

// TestPage opens the report in a browser and looks at what is drawn.
func TestPage(t *testing.T) {
	ctx, failures := browser(t)
	open(t, ctx, sample())
	const (
		charts = `[...document.querySelectorAll("svg")].filter(s => { const b = s.getBoundingClientRect(); return b.width > 300 && b.height > 60; }).length`
		lines  = `[...document.querySelectorAll("svg path.line")].filter(p => p.getTotalLength() > 100).length`
		bars   = `document.querySelectorAll(".cost i").length`
		marks  = `document.querySelectorAll("svg .marked").length`
		cells  = `[...document.querySelectorAll("#overview .cell")].filter(c => c.offsetParent && getComputedStyle(c).visibility === "visible" && c.querySelector(".bar").getBoundingClientRect().width > 1).length`
		wrong  = `[...document.querySelectorAll("#overview .bar.wrong")].map(b => b.parentElement.innerText).join().includes("WRONG: 12 lost updates") ? document.querySelectorAll("#overview .bar.wrong").length : -1`
		beyond = `[...document.querySelectorAll("svg :not(title)")].filter(e => { const b = e.getBoundingClientRect(), s = e.closest("svg").getBoundingClientRect(); return b.right > s.right + 1 || b.left < s.left - 1 || b.bottom > s.bottom + 1 || b.top < s.top - 1; }).map(e => e.outerHTML).join("\n")`
		hidden = `document.querySelectorAll(".off").length`
		click  = `document.querySelector("[data-toggle='0']").click()`
	)
	// 4 charts in the scene with failures and 3 in each other; a line for each
	// contender in each chart; three bars for its cost; 2 marks in each chart over time.
	for what, want := range map[string]int{charts: 4 + 4*3, lines: 4*4 + 3*12, bars: 16 * 3, marks: 2 * (3 + 4*2), cells: 16, wrong: 1} {
		if got := do(t, ctx, chromedp.Evaluate[int](what)); got != want {
			t.Errorf("%d, want %d of %s", got, want, what)
		}
	}
	if out := do(t, ctx, chromedp.Evaluate[string](beyond)); out != "" {
		t.Errorf("beyond their charts:\n%s", out)
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

// TestSizes: the page can be read on a small laptop and on a phone, by day and
// by night. The first screen of a laptop has the summary and all of the
// overview, and nothing of the page has to be moved to be seen there.
func TestSizes(t *testing.T) {
	ctx, _ := browser(t)
	open(t, ctx, sample())
	const (
		wide     = `document.documentElement.scrollWidth - document.documentElement.clientWidth`
		scrolled = `[...document.querySelectorAll(".card")].filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.innerText.slice(0, 60)).join(" | ")`
		cut      = `[...document.querySelectorAll(".summary, #overview .cell, #overview .who, td, th")].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX !== "visible" || e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== "visible").map(e => e.innerText).join(" | ")`
		bottom   = `document.querySelector("#overview").getBoundingClientRect().bottom`
		small    = `[...document.querySelectorAll("svg text")].filter(e => e.getBoundingClientRect().height < 11).length`
		ink      = `getComputedStyle(document.body).color`
	)
	var inks []string
	for _, scheme := range []string{"light", "dark"} {
		do(t, ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return err
		}))
		inks = append(inks, do(t, ctx, chromedp.Evaluate[string](ink)))
		for _, width := range []int64{1280, 420} {
			name := fmt.Sprintf("%s-%d", scheme, width)
			do(t, ctx, chromedp.EmulateViewport(width, 800))
			if n := do(t, ctx, chromedp.Evaluate[int](wide)); n > 0 {
				t.Errorf("%s: the page is %d pixels wider than the window", name, n)
			}
			if text := do(t, ctx, chromedp.Evaluate[string](cut)); text != "" {
				t.Errorf("%s: these are cut: %s", name, text)
			}
			if n := do(t, ctx, chromedp.Evaluate[int](small)); n > 0 {
				t.Errorf("%s: %d words in charts are too small to read", name, n)
			}
			if width < 1280 {
				continue
			}
			if text := do(t, ctx, chromedp.Evaluate[string](scrolled)); text != "" {
				t.Errorf("%s: one has to scroll in these to see all: %s", name, text)
			}
			if y := do(t, ctx, chromedp.Evaluate[float64](bottom)); y > 800 {
				t.Errorf("%s: the overview ends at %.0f, below the first screen", name, y)
			}
		}
	}
	if inks[0] == inks[1] {
		t.Errorf("text is %s by day and by night", inks[0])
	}
}
