//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// Contestants of the hop.
const (
	haproxy       = "HAProxy"
	nginx         = "nginx"
	keywayRouter  = "Keyway"
	keywayHandler = "Keyway, http.Handler"
	keywayPlain   = "Keyway, HTTP/1.1 workers"
	keywaySecure  = "Keyway, TLS to workers"
	keywayOther   = "Keyway, --other"
	haproxyApp    = "HAProxy, one app"
	sidecar       = "Keyway, sidecar"
	sidecarOther  = "Keyway, --other-worker"
	doorsAny      = "nginx, any door"
	doorsOwner    = "nginx, the owner's door"
	doorsRouter   = "nginx, 2 routers, workers"
)

// scenario is one table.
type scenario struct {
	name        string
	title       string
	front       front
	connections int
	streams     int
	rate        float64 // requests per second; 0: as many as there are answers to
	path        string
	field       []string // contestants; the first one is what the others are compared with
	goal        string
}

// keys is how many there are, all equally frequent.
const keys = 10_000

// idle is the scenario that measures memory.
const idle = "idle"

// pacedRate is less than half of what any proxy here can take without TLS, so that latency
// is the proxies' own and not that of a queue.
const pacedRate = 20_000

func scenarios() []scenario {
	all := []string{haproxy, nginx, keywayRouter, keywayHandler}
	return []scenario{
		{
			name: idle, title: "memory with idle client connections, after one request each", goal: "≤ 200 MB in the router",
			connections: 10_000, path: "/100", field: []string{haproxy, nginx, keywayRouter},
		},
		{
			name: "small", title: "64 connections, 100-byte answers", goal: "CPU ≤ 0.75 ×, p99 ≤ 1 × HAProxy's",
			connections: 64, path: "/100", field: append(slices.Clone(all), keywaySecure),
		},
		{
			name: "paced", title: fmt.Sprintf("64 connections, 100-byte answers, %d requests/s at random times", pacedRate), goal: "p99 ≤ 1 × HAProxy's",
			connections: 64, rate: pacedRate, path: "/100", field: all,
		},
		{name: "10k", title: "64 connections, 10 KiB answers", connections: 64, path: "/10240", field: all},
		{name: "1m", title: "64 connections, 1 MiB answers", goal: "bytes/s ≥ 0.8 × HAProxy's", connections: 64, path: "/1048576", field: all},
		{name: "1000", title: "1,000 connections, 100-byte answers", connections: 1000, path: "/100", field: all},
		{
			name: "tls", title: "TLS in front, 64 connections, 100-byte answers", goal: "CPU ≤ 0.9 × HAProxy's",
			front: frontTLS, connections: 64, path: "/100", field: all,
		},
		{
			name: "tls-paced", title: fmt.Sprintf("TLS in front, 64 connections, 100-byte answers, %d requests/s at random times", pacedRate),
			goal: "p99 ≤ 1 × HAProxy's", front: frontTLS, connections: 64, rate: pacedRate, path: "/100", field: []string{haproxy, nginx, keywayRouter},
		},
		{
			name: "plain", title: "workers over plain HTTP/1.1, 64 connections, 100-byte answers", goal: "CPU ≤ 1.05 × HAProxy's",
			connections: 64, path: "/100", field: []string{haproxy, nginx, keywayPlain},
		},
		{
			name: "h2", title: "HTTP/2 in front, 8 connections of 8 streams, 100-byte answers", goal: "CPU ≤ 1.5 × nginx's",
			front: frontHTTP2, connections: 8, streams: 8, path: "/100", field: []string{nginx, haproxy, keywayRouter, keywayHandler},
		},
		{
			name: "sidecar", title: "before an app on a Unix socket, 64 connections (the sidecar: one link of 64 streams), 100-byte answers",
			goal: "sidecar's CPU ≤ 0.8 × HAProxy's", connections: 64, path: "/100", field: []string{haproxyApp, sidecar},
		},
		{
			name: "doors", title: "three workers before an app on a Unix socket, 64 connections, 100-byte answers; CPU of all parts but the app",
			goal: "any door ≤ 1.6 × the owner's, ≤ the router's", connections: 64, path: "/100", field: []string{doorsOwner, doorsAny, doorsRouter},
		},
	}
}

type flags struct {
	programsDir string // "": they are built
	rounds      int
	time        time.Duration
	warmUp      time.Duration
	idleConns   int
	scenarios   []scenario
	other       string
	otherWorker string
	bare        bool
}

func parseFlags(args []string, out io.Writer) (f flags, err error) {
	var chosen, names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	set := cli.NewFlags("hop", "Hop measures what a request costs in Keyway's router, in HAProxy and in nginx, in turns.\n")
	set.String(&f.programsDir, "programs", "", "`directory` of the router and worker to use; by default they are built")
	set.Int(&f.rounds, "rounds", 5, 1, "`number` of rounds in which each proxy has its turn")
	var seconds float64
	set.Float(&seconds, "seconds", 2, 1e-3, 1e6, "`length` of a turn")
	set.Duration(&f.warmUp, "warm-up", 300*time.Millisecond, 0, "`length` of the load before each turn")
	set.Int(&f.idleConns, "idle", 10_000, 1, "`number` of connections of the scenario idle")
	set.List(&chosen, "scenarios", ",", names, "`names` of those to measure, separated by commas")
	set.String(&f.other, "other", "", "`path` of another build of cmd/router to compare with")
	set.String(&f.otherWorker, "other-worker", "", "`path` of another build of cmd/worker to compare with")
	set.Bool(&f.bare, "bare", "routers and workers without routes, limits, rates and a gossip key")
	if err := set.Parse(args, out); err != nil {
		return f, err
	}
	f.time = time.Duration(seconds * float64(time.Second))
	for _, name := range chosen {
		i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == name })
		if i < 0 {
			return f, cli.Usagef("--scenarios: there is no %q; there are %s", name, strings.Join(names, ","))
		}
		f.scenarios = append(f.scenarios, scenarios()[i])
	}
	return f, nil
}

func (h *hop) run() error {
	if err := h.choosePlace(); err != nil {
		return err
	}
	if err := h.prepare(); err != nil {
		return err
	}
	for _, s := range h.scenarios {
		if err := h.measure(s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return h.grows
}

// choosePlace gives the proxies a core of their own, if there are two. This process, which makes the load, and
// all others share the next ones.
func (h *hop) choosePlace() error {
	cores, err := proc.Cores()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	if len(cores) < 2 {
		fmt.Fprintln(h.out, "There is one core only, which the proxy shares with load generator and upstreams: read CPU/request, not requests/s.")
		h.place = place{cores, cores}
		return nil
	}
	h.place = place{cores[:1], cores[1:min(3, len(cores))]}
	fmt.Fprintf(h.out, "The proxy runs on core %d alone; load generator, upstreams and redis-server on %v. Each proxy has one thread that works. Upstreams run with %s.\n", cores[0], h.place.others, upstreamsEnv)
	if h.bare {
		fmt.Fprintln(h.out, "Keyway has no routes, limits, rates and gossip key: --bare.")
	}
	fmt.Fprintln(h.out, "CPU is the proxy's, user's and kernel's, of all its processes. × are medians of the rounds' ratios to the first row.")
	return proc.Pin(h.place.others)
}

func (h *hop) measure(s scenario) error {
	if h.other != "" && slices.Contains(s.field, keywayRouter) {
		s.field = append(slices.Clone(s.field), keywayOther)
	}
	if h.otherWorker != "" && slices.Contains(s.field, sidecar) {
		s.field = append(slices.Clone(s.field), sidecarOther)
	}
	for _, name := range s.field {
		if _, err := h.proxy(name, s.front); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
	}
	if s.name == idle {
		return h.measureIdle(s)
	}
	rows := make(map[string]figures)
	for round := range h.rounds {
		for _, name := range s.field {
			if rows[name] == nil {
				rows[name] = make(figures)
			}
			if err := h.turn(s, name, rows[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(h.out, "  %s %d/%d  %-26s %9s/s  %s\n", s.name, round+1, h.rounds, name,
				report.Count(rows[name][perSecond][round]), micros(rows[name][cpuPer][round]))
		}
	}
	h.print(s, rows)
	return nil
}

func (h *hop) config(s scenario, p *proxy) load.Config {
	f := cmp.Or(s.front, frontHTTP)
	cfg := load.Config{
		Addr: p.addr[f], TLS: f == frontTLS, HTTP2: f == frontHTTP2, Clients: s.connections, Streams: s.streams, Rate: s.rate,
		Mix: load.Mix{Path: s.path, Keys: keys}, WarmUp: h.warmUp, Time: h.time,
	}
	if p.client != nil {
		cfg.Clients, cfg.Streams = 1, s.connections
		cfg.Call = func(ctx context.Context, key string) (int64, error) { return call(ctx, p.client, s.path, key) }
	}
	return cfg
}

// figures are the series of a row by name.
type figures map[string]report.Series

// Names of figures.
const (
	perSecond  = "requests/s"
	bytesRate  = "bytes/s"
	p50        = "p50"
	p99        = "p99"
	cpuPer     = "CPU/request"
	failures   = "failed"
	proxyBusy  = "proxy busy"
	loadBusy   = "generator busy"
	originBusy = "upstreams busy"
)

// turn measures a proxy once.
func (h *hop) turn(s scenario, name string, f figures) error {
	p, err := h.proxy(name, s.front)
	if err != nil {
		return err
	}
	kind, _ := h.contestant(name)
	var proxy, origin time.Duration
	var files int
	sample := func(sign time.Duration) func() {
		return func() {
			proxy, origin = proxy+sign*p.cpu(), origin+sign*proc.CPU(h.origins[kind].process)
			files += int(sign) * p.openFiles()
		}
	}
	cfg := h.config(s, p)
	cfg.Begin, cfg.End = sample(-1), sample(1)
	stop := func() report.Series { return nil }
	if h.time >= longTurn {
		stop = p.watch(h.time / samples)
	}
	r, err := load.Run(h.ctx, cfg)
	memory := stop()
	if err := errors.Join(err, h.stage.Check()); err != nil {
		return err
	}
	if before, after, grows := grown(memory); grows {
		fmt.Fprintf(h.out, "%s GROWS: from %s to %s\n", name, megabytes(before), megabytes(after))
		h.grows = errGrows
	}
	if h.time >= longTurn && files > moreFiles {
		fmt.Fprintf(h.out, "%s GROWS: by %d open files\n", name, files)
		h.grows = errGrows
	}
	if r.Answered == 0 {
		return fmt.Errorf("no request was answered with 200: %s", r.Failures)
	}
	seconds, requests := r.Time.Seconds(), float64(r.Answered)
	for figure, value := range map[string]float64{
		perSecond: requests / seconds, bytesRate: float64(r.Bytes) / seconds, p50: r.Quantile(50).Seconds() * 1e3, p99: r.Quantile(99).Seconds() * 1e3,
		cpuPer: proxy.Seconds() * 1e6 / requests, failures: float64(r.Failed),
		proxyBusy: proxy.Seconds() / seconds, originBusy: origin.Seconds() / seconds, loadBusy: r.Own.Seconds() / seconds,
	} {
		f[figure] = append(f[figure], value)
	}
	return nil
}

func micros(us float64) string { return fmt.Sprintf("%.1f µs", us) }

func (h *hop) print(s scenario, rows map[string]figures) {
	lines := [][]string{{"", perSecond, "×", "MB/s", "p50", "p99", "×", cpuPer, "×", "(spread)", proxyBusy, loadBusy, originBusy, failures}}
	base := rows[s.field[0]]
	for _, name := range s.field {
		f := rows[name]
		ratios := f[cpuPer].Over(base[cpuPer])
		lines = append(lines, []string{
			name, report.Count(f[perSecond].Median()), f[perSecond].Over(base[perSecond]).Times(), fmt.Sprintf("%.0f", f[bytesRate].Median()/1e6),
			report.Millis(f[p50].Median()), report.Millis(f[p99].Median()), f[p99].Over(base[p99]).Times(),
			micros(f[cpuPer].Median()), ratios.Times(), ratios.Spread("%.2f"),
			report.Percent(f[proxyBusy].Median()), report.Percent(f[loadBusy].Median()), report.Percent(f[originBusy].Median()), fmt.Sprint(slices.Max(f[failures])),
		})
	}
	title := s.title
	if s.goal != "" {
		title += " (goal: " + s.goal + ")"
	}
	report.Table(h.out, title, lines)
	for _, name := range s.field {
		h.explain(s, name, rows[name])
	}
	fmt.Fprintln(h.out)
}

// explain says what bounds a row's requests/s if it is not the proxy.
func (h *hop) explain(s scenario, name string, f figures) {
	busy, others := f[proxyBusy].Median(), f[loadBusy].Median()+f[originBusy].Median()
	switch {
	case s.rate > 0, len(h.place.proxy) > 1 || busy >= 0.9:
	case others >= 0.85*float64(len(h.place.others)):
		fmt.Fprintf(h.out, "note: %s was busy %s of the time only: generator and upstreams bound its requests/s. Its CPU/request holds.\n", name, report.Percent(busy))
	default:
		fmt.Fprintf(h.out, "note: %s was busy %s of the time only, and so were the others (%s): something else runs on this machine. Its requests/s mean nothing.\n", name, report.Percent(busy), report.Percent(others))
	}
}

// measureIdle prints the memory of each proxy with idle connections.
func (h *hop) measureIdle(s scenario) error {
	var base float64
	lines := [][]string{{"", "before", "with the connections", "per connection", "×"}}
	for _, name := range s.field {
		p, err := h.proxy(name, s.front)
		if err != nil {
			return err
		}
		s.connections = h.idleConns
		before, with := float64(proc.Resident(p.pids()...)), 0.0
		err = load.Hold(h.config(s, p), func() { with = float64(proc.Resident(p.pids()...)) })
		if err := errors.Join(err, h.stage.Check()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		base = cmp.Or(base, with)
		lines = append(lines, []string{name, megabytes(before), megabytes(with), fmt.Sprintf("%.1f KB", (with-before)/1e3/float64(h.idleConns)), fmt.Sprintf("%.2f ×", with/base)})
	}
	report.Table(h.out, fmt.Sprintf("%s: %d (goal: %s)", s.title, h.idleConns, s.goal), lines)
	return nil
}

func megabytes(n float64) string { return fmt.Sprintf("%.1f MB", n/1e6) }
