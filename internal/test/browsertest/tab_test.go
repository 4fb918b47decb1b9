package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a busy machine may take for what takes moments on another one.
const patience = 90 * time.Second

// tab is a tab of a headless Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	failures []string // what went wrong in its console
}

func openTab(t *testing.T) *tab {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("chromium is not installed. As root: scripts/deps $(cat internal/test/browsertest/debian-packages)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 1000), chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	tab := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			tab.note("console.%s", e.Type)
		case *runtime.EventExceptionThrown:
			tab.note("%s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *log.EventEntryAdded:
			tab.note("%s: %s", e.Entry.Source, e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func (b *tab) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, fmt.Sprintf(format, args...))
}

// complaints returns what went wrong in the console since the last call.
func (b *tab) complaints() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.failures, "\n")
	b.failures = nil
	return all
}

// do runs an action in the tab and returns what it yields.
func do[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return do(b, chromedp.Evaluate[T](expression))
}

// await waits until an expression is true.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0)))
	if err == nil {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) {
		b.t.Fatalf("never: %s. The page:\n%s", what, eval[string](b, `document.body.innerText`))
	}
	b.t.Fatalf("%s: %v", what, err)
}

// media has the page see features of media, as names and values.
func (b *tab) media(features ...string) {
	b.t.Helper()
	var list []*emulation.MediaFeature
	for i := 0; i < len(features); i += 2 {
		list = append(list, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	do(b, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: list})
		return err
	}))
}

// press presses the tabulator.
func (b *tab) press() {
	b.t.Helper()
	do(b, chromedp.KeyEvent(kb.Tab))
}

// tree returns what assistive technology sees of the page: roles and names.
func (b *tab) tree() (nodes [][2]string) {
	b.t.Helper()
	do(b, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		all, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		for _, n := range all.Nodes {
			if !n.Ignored && n.Role != nil {
				nodes = append(nodes, [2]string{valueOf(n.Role), valueOf(n.Name)})
			}
		}
		return err
	}))
	return nodes
}

func valueOf(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// picture keeps a picture of the page in the directory SCREENSHOTS, if that is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), do(b, chromedp.FullScreenshot(100)), 0o600); err != nil {
		b.t.Fatal(err)
	}
}
