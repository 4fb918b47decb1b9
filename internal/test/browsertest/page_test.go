package browsertest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/keyway-go/keyway/internal/cluster"
)

// ttl is of sessions: long enough for the page to say of a dead worker that it is gone.
const ttl = "8s"

// site is a router and workers with the demo app.
type site struct {
	t        *testing.T
	programs cluster.Programs
	router   *cluster.Process
	locks    string // socket of the lock service
}

func newSite(t *testing.T) *site {
	t.Helper()
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, programs: programs}
	s.locks = filepath.Join(t.TempDir(), "locks")
	s.router = s.start("router", programs.Router, "--listen", "127.0.0.1:0", "--locks", "unix://"+s.locks)
	return s
}

func (s *site) start(name, program string, args ...string) *cluster.Process {
	s.t.Helper()
	args = append(args, "--new-cluster", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--session-ttl", ttl)
	p, err := cluster.Start(s.t.Context(), name, program, s.t.Output(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Kill)
	return p
}

func (s *site) add(name string) *cluster.Process {
	s.t.Helper()
	return s.start(name, s.programs.Worker, "--name", name, "--join", s.router.Gossip, "--placement", "off") // a balancer would hold a lock
}

// send sends a request, and does not look at its answer.
func (s *site) send(ctx context.Context, method, url, key string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Key", key)
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
	}
}

// lock makes a request to the lock service.
func (s *site) lock(method, key, query string) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.locks)
	}}}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://locks/v1/locks/"+key+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		s.t.Errorf("%s of the lock of %s: %s", method, key, res.Status)
	}
}

const (
	headline = `document.getElementById("headline").innerText`
	sentence = `[headline, ...document.querySelectorAll("#more li")].map(e => e.innerText).join(" ")`
	colours  = rows + `.map(r => r.querySelector(".name").innerText + " " + r.querySelector(".swatch").className).join()`
	rows     = `[...document.querySelectorAll("#workers tbody tr")]`
)

// says returns an expression that is true once a sentence of the page matches a pattern.
func says(pattern string) string { return "/" + pattern + "/.test(" + sentence + ")" }

// The page tells of workers that come, are drained, come back and die, and of keys; in a
// real browser, of real programs.
func TestLivePage(t *testing.T) {
	b := openTab(t)
	s := newSite(t)
	w1 := s.add("w1")
	s.add("w2")
	do(b, chromedp.Navigate("http://"+s.router.Admin+"/"))
	b.await("both serve", says("^Both workers serve; nothing is moving"))
	b.await("it knows whose it is", `document.getElementById("self").innerText.endsWith(", a router")`)

	w3 := s.add("w3")
	b.await("all three serve", says("^All 3 workers serve; nothing is moving"))
	b.await("w3 has a row with what it serves", rows+`.some(r => r.cells[0].innerText.startsWith("w3") && Number(r.cells[2].querySelector(".main").innerText.replace(",", "")) > 500)`)
	b.await("the picture has three arcs and three names", `document.querySelectorAll("#arcs path").length === 3 && [...document.querySelectorAll("#names text")].map(e => e.textContent).join() === "w1,w2,w3"`)
	b.await("the picture is said in words", `/w1: \d+ % of 4,096 partitions; w2: .*; w3: \d+ %/.test(document.getElementById("picture-text").textContent)`)
	b.await("the move is told of", `/→ w3/.test(document.getElementById("moves").innerText)`)
	b.await("a screen reader was told", `document.getElementById("announcement").innerText.startsWith("All 3 workers serve")`)

	explained(b, s)
	locked(b, s)
	forEverybody(b)
	do(b, chromedp.Navigate("http://"+w1.Admin+"/"))
	b.await("a worker's own page tells of all three", says("^All 3 workers serve")+` && document.getElementById("self").innerText === "w1, a worker"`)
	b.await("it shows its executions, and explains keys", `document.querySelector("#rate dt").innerText.startsWith("Executions") && !document.getElementById("why").hidden && !document.getElementById("hot-section").hidden`)
	b.picture("worker")
	do(b, chromedp.Navigate("http://"+s.router.Admin+"/"))
	b.await("the router's page is there again", says("^All 3 workers serve"))
	seen := eval[string](b, colours+` + colour("w9")`)
	if c := b.complaints(); c != "" {
		t.Errorf("the console says:\n%s", c)
	}

	s.send(t.Context(), http.MethodPost, s.router.Admin+"/drain?worker=w2", "")
	b.await("w2 is drained", says("w2 is drained"))
	b.await("w2's row says so", rows+`.some(r => r.cells[0].innerText.startsWith("w2") && r.cells[1].innerText === "drained" && r.cells[2].querySelector(".main").innerText === "0")`)
	b.await("its locks are others'", `!`+rows+`.some(r => r.cells[0].innerText.startsWith("w2") && /locked/.test(r.cells[4].innerText)) && `+locks+` === 30`)
	b.picture("drained")
	for i := range 30 {
		s.lock(http.MethodDelete, fmt.Sprint("stock-", i), "")
	}
	b.await("no key is locked", locks+` === 0`)
	s.send(t.Context(), http.MethodPost, s.router.Admin+"/undrain?worker=w2", "")
	b.await("all three serve again", says("^All 3 workers serve; nothing is moving"))

	eval[bool](b, `window.said = new Set(), new MutationObserver(() => said.add(`+sentence+`)).observe(document.getElementById("now"), {subtree: true, childList: true, characterData: true}), true`)
	w3.Kill()
	b.await("w3 is missed", `[...said].some(s => /w3 (is gone: its [\d,]+ partitions are served again in about \d+ s|does not answer)/.test(s))`)
	b.picture("killed")
	b.await("its partitions are served again", says("^Both workers serve; nothing is moving"))
	if c := b.complaints(); c != "" {
		t.Errorf("the console says:\n%s", c)
	}
	b.picture("after")
	do(b, chromedp.Navigate("http://"+s.router.Admin+"/"))
	b.await("the page is loaded again", says("^Both workers serve"))
	if again := eval[string](b, `(colour("another"), `+colours+` + ",w3 swatch " + colour("w3") + colour("w9"))`); !strings.HasPrefix(again, "w1 swatch c") || seen != again {
		t.Errorf("after a load the workers' colours are %q, before they were %q", again, seen)
	}

	s.router.Kill()
	b.await("the connection is lost", `!document.getElementById("lost").hidden && document.getElementById("link").innerText === "connection lost"`)
	b.picture("lost")
}

// explained asks why a key is slow, by the form and by a button, and sees that what a key
// has in it is text.
func explained(b *tab, s *site) {
	b.t.Helper()
	const evil = `<img src=x onerror="document.title='evil'">`
	ctx, cancel := context.WithCancel(b.t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for range 6 { // one holds the key, others wait
		busy.Go(func() {
			for ctx.Err() == nil {
				s.send(ctx, http.MethodGet, s.router.Listen+"/?hold=1s", evil)
			}
		})
	}
	b.await("the key is hot", `[...document.querySelectorAll("#hot tbody tr")].some(r => r.cells[0].innerText === `+fmt.Sprintf("%q", evil)+` && Number(r.cells[3].innerText) > 2)`)
	do(b, chromedp.SendKeys("#key", evil+kb.Enter))
	const explains = `/(holds the key: it has|is being passed on).*wait for it: \d+, from one client/.test(document.getElementById("verdict").innerText.replaceAll("\n", " "))`
	b.await("the form explains the key", explains)
	if facts := eval[string](b, `document.getElementById("facts").innerText`); !strings.Contains(facts, "the ring wants") || !strings.Contains(facts, "held by") || !strings.Contains(facts, "onerror") {
		b.t.Errorf("facts: %s", facts)
	}
	b.picture("explained")
	eval[bool](b, `document.getElementById("verdict").replaceChildren(), document.getElementById("key").value = "", true`)
	do(b, chromedp.Click("#hot button"))
	b.await("the button explains it", explains+` && document.getElementById("key").value.startsWith("<img")`)
	if n := eval[int](b, `document.querySelectorAll("img").length`); n > 0 {
		b.t.Errorf("a key has made %d elements", n)
	}
}

// locks is how many keys are locked, as the rows of workers say.
const locks = rows + `.map(r => Number((r.cells[4].innerText.match(/(\d+) locked/) || [0, 0])[1])).reduce((a, b) => a + b)`

// locked sees locks of others, 30 of which stay, and who has one.
func locked(b *tab, s *site) {
	b.t.Helper()
	for i := range 30 {
		s.lock(http.MethodPost, fmt.Sprint("stock-", i), "?ttl=1h&label=stocktaking")
	}
	b.await("each worker has locks", rows+`.every(r => /\d locked/.test(r.cells[4].innerText)) && `+locks+` === 30`)
	eval[bool](b, `document.getElementById("verdict").replaceChildren(), document.getElementById("key").value = "", true`)
	do(b, chromedp.SendKeys("#key", "stock-7"+kb.Enter))
	b.await("who has the lock is said", `/Another member, at .* \("stocktaking"\), holds the key at worker w\d: it has .*, and loses the key in .* unless the member renews it/.test(document.getElementById("verdict").innerText.replaceAll("\n", " "))`)
	b.picture("locked")
}

// forEverybody looks at the page on a phone and on a desk, by day and by night, without
// motion, by keyboard, and as assistive technology does.
func forEverybody(b *tab) {
	b.t.Helper()
	var grounds []string
	for _, scheme := range []string{"light", "dark"} {
		b.media("prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce")
		grounds = append(grounds, eval[string](b, `getComputedStyle(document.body).backgroundColor`))
		for _, width := range []int64{360, 768, 1280} {
			do(b, chromedp.EmulateViewport(width, 800))
			b.await("the page has its width", fmt.Sprintf("innerWidth === %d", width))
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.picture(name)
			if wide := eval[string](b, `document.documentElement.scrollWidth <= innerWidth ? "" : [...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)).join("\n")`); wide != "" {
				b.t.Errorf("%s: wider than the window:\n%s", name, wide)
			}
			if faint := eval[string](b, contrast); faint != "" {
				b.t.Errorf("%s: text with a contrast below 4.5:\n%s", name, faint)
			}
		}
	}
	if grounds[0] == grounds[1] {
		b.t.Errorf("the page is %s by day and by night", grounds[0])
	}
	const moves = `(() => { const p = document.createElementNS("http://www.w3.org/2000/svg", "path"); p.setAttribute("class", "coming"); document.getElementById("names").append(p); const name = getComputedStyle(p).animationName; p.remove(); return name; })()`
	if name := eval[string](b, moves); name != "none" {
		b.t.Errorf("who wants less motion gets the animation %s", name)
	}
	b.media()
	if name := eval[string](b, moves); name != "pulse" {
		b.t.Errorf("what comes has the animation %q", name)
	}

	var order []string
	do(b, chromedp.Navigate(eval[string](b, "location.href"))) // so that focus begins at the top
	b.await("the page is there again", rows+`.length === 3 && !document.getElementById("why").hidden`)
	for range 3 {
		b.press()
		order = append(order, eval[string](b, `document.activeElement.id`))
	}
	if !slices.Equal(order, []string{"skip", "key", "explain"}) {
		b.t.Errorf("the tabulator goes to %q", order)
	}

	named := []string{"button", "textbox", "link", "table", "image", "region", "columnheader", "rowheader", "heading", "RootWebArea"}
	nodes := b.tree()
	for _, n := range nodes {
		if slices.Contains(named, n[0]) && strings.TrimSpace(n[1]) == "" {
			b.t.Errorf("a %s has no name", n[0])
		}
	}
	for _, want := range [][2]string{
		{"main", ""}, {"banner", ""}, {"contentinfo", ""}, {"heading", "Keyway"}, {"image", "Ring"}, {"table", "Workers"}, {"table", "Recent moves and takeovers"},
		{"columnheader", "Partitions"}, {"cell", "w1"}, {"textbox", "Key, as the workers see it"}, {"button", "Explain"}, {"region", "Why is a key slow?"}, {"status", ""},
	} {
		if !slices.ContainsFunc(nodes, func(n [2]string) bool { return n[0] == want[0] && strings.Contains(n[1], want[1]) }) {
			b.t.Errorf("assistive technology sees no %s %q", want[0], want[1])
		}
	}
}

// contrast is the pieces of text whose contrast with what is behind them is below 4.5.
const contrast = `(() => {
	const rgb = s => (s.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
	const faint = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, style = getComputedStyle(e);
		if (!walk.currentNode.data.trim() || !e.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT", "desc"].includes(e.tagName)) continue;
		seen++;
		const a = light(rgb(e instanceof SVGElement ? style.fill : style.color).slice(0, 3)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) faint.push(ratio.toFixed(2) + " " + walk.currentNode.data.trim());
	}
	return seen < 40 ? "only " + seen + " pieces of text were looked at" : faint.join("\n");
})()`
