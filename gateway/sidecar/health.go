package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
)

// How the app behind a sidecar is watched.
const (
	probeTimeout = time.Second
	probeEvery   = time.Second            // while the app answers
	probeSoon    = 100 * time.Millisecond // while it does not, or has just failed to
	probeFails   = 2                      // failures in a row after which it counts as down

	crashPeriod = 5 * time.Minute // an app that goes down within it after it came up has crashed
	firstDelay  = time.Second     // how long an app must answer after its second crash in a row; twice as long after each further one
	lastDelay   = time.Minute
)

// appHealth says whether the app behind a sidecar answers. The worker takes no
// place on the ring while it does not. run alone changes the state.
type appHealth struct {
	app   string // for messages
	probe func(context.Context) error
	state atomic.Pointer[appstate.State]
	doubt chan error // why a request could not be sent; holds one element
}

// watchApp begins to probe the app of a sidecar: with a GET request for
// App.UpstreamHealth, or else by making a connection.
func watchApp(w *worker.Worker, target *url.URL, app string, h2 bool, dial func(context.Context) (net.Conn, error)) (*appHealth, error) {
	cfg := w.Config()
	h := &appHealth{app: app, probe: probeConnection(dial), doubt: make(chan error, 1)}
	if path := cfg.UpstreamHealth; path != "" {
		at := strings.TrimSuffix(target.EscapedPath(), "/") + path
		u, err := url.Parse("http://" + target.Host + at)
		if err != nil || !strings.HasPrefix(path, "/") || !grammar.IsTarget(at) {
			return nil, fmt.Errorf("worker: App.UpstreamHealth is %q, want a path such as /healthz", path)
		}
		h.probe = probePath(u, h2, dial)
	}
	r := appRecord{up: !cfg.AwaitApp}
	first := r.state(app, time.Now(), errors.New("it was not asked yet"))
	h.state.Store(first)
	w.WatchApp(*first, func(ctx context.Context, tell func(appstate.State)) { h.run(ctx, r, tell) })
	return h, nil
}

func probeConnection(dial func(context.Context) (net.Conn, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func probePath(u *url.URL, h2 bool, dial func(context.Context) (net.Conn, error)) func(context.Context) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	transport := &http.Transport{
		Protocols:         protocols,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableKeepAlives: true,
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return err
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode >= 400 {
			return fmt.Errorf("GET %s: status %d, want 2xx or 3xx", u.Path, res.StatusCode)
		}
		return nil
	}
}

// run probes the app until ctx ends, and reports the results to tell.
func (h *appHealth) run(ctx context.Context, r appRecord, tell func(appstate.State)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case err = <-h.doubt:
			if r.failures > 0 { // it is being found out
				continue
			}
		case <-timer.C:
			try, cancel := context.WithTimeout(ctx, probeTimeout)
			err = h.probe(try)
			cancel()
		}
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return
		case isOwnFault(err): // it says nothing about the app
			timer.Reset(probeEvery)
		default:
			timer.Reset(r.noteProbe(now, err))
			h.state.Store(r.state(h.app, now, err))
		}
		tell(*h.state.Load())
	}
}

// dialing returns dial, whose failures make the app be probed at once.
func (h *appHealth) dialing(dial func(context.Context) (net.Conn, error)) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil && ctx.Err() == nil {
			select {
			case h.doubt <- err:
			default:
			}
		}
		return conn, err
	}
}

// refusal returns why no request may go to the app; nil while it answers.
func (h *appHealth) refusal() error {
	if down := h.state.Load().Down; down != nil {
		return fmt.Errorf("%w: %w", hop1.ErrNotStarted, down)
	}
	return nil
}

// isOwnFault reports whether an app could not be asked for want of something on
// this side, or because so many connections to it wait to be accepted.
func isOwnFault(err error) bool {
	own := []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM, syscall.EAGAIN}
	return slices.ContainsFunc(own, func(e error) bool { return errors.Is(err, e) })
}

// appRecord is what an app is judged by.
type appRecord struct {
	up       bool
	since    time.Time // when it came up, if it is up
	failures int       // in a row
	crashes  int       // in a row
}

// noteProbe takes a probe's outcome, and returns when to probe again.
func (r *appRecord) noteProbe(now time.Time, err error) time.Duration {
	switch {
	case err == nil && !r.up:
		r.up, r.since, r.failures = true, now, 0
	case err == nil:
		r.failures = 0
	default:
		if r.failures++; r.up && r.failures >= probeFails {
			if now.Sub(r.since) >= crashPeriod {
				r.crashes = 0
			}
			r.up = false
			r.crashes++
		}
	}
	switch left := r.delay() - now.Sub(r.since); {
	case !r.up || r.failures > 0:
		return probeSoon
	case left > 0:
		return min(left, probeEvery)
	}
	return probeEvery
}

// delay returns for how long the app must have answered until the worker joins others on the ring.
func (r *appRecord) delay() time.Duration {
	if r.crashes < 2 {
		return 0
	}
	return min(firstDelay<<min(r.crashes-2, 10), lastDelay)
}

// state returns the state after a probe that ended with err.
func (r *appRecord) state(app string, now time.Time, err error) *appstate.State {
	s := new(appstate.State)
	switch {
	case !r.up:
		s.Down = fmt.Errorf("%w at %s: %w", worker.ErrAppDown, app, err)
	case now.Sub(r.since) < r.delay():
		s.Delay = fmt.Errorf("%w reliably at %s: it went down %d times in a row, and must answer for %v to count as up", worker.ErrAppDown, app, r.crashes, r.delay())
	}
	return s
}
