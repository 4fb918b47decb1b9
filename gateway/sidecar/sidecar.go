// Package sidecar is for programs that start a worker beside an app. The app, another process with
// a URL, answers the worker's requests.
//
// Files, from a request inwards:
//
//	batches.go  requests that wait for one key go to the app as one: json.go says how they look, path.go whose their path is
//	sidecar.go  any other goes by the proxy of net/http, or by a short way if it is simple and came over the link
//	link.go     the short way, in HTTP/1.1
//	grpc.go     apps that speak HTTP/2: what is different for calls of gRPC
//	health.go   whether the app answers
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// New returns a handler of w that forwards each request to the app at target (http://host:port,
// h2c://host:port for HTTP/2 without TLS, as gRPC needs it, or unix:///path/of/socket). The key is
// held until the app has answered completely or has closed the connection. If the client leaves
// earlier, the key is still held, for up to worker.Limits.AbandonedTimeout. The app should stop
// working on a request whose connection closes: this is how it learns that the ownership was lost,
// or that its client broke off an upload.
//
// When the sidecar gives up a connection before the answer is complete, it half-closes it. It holds
// the key until the app has closed the connection too, but no longer than a cancelled execution may
// continue: 0.15 TTL. If the app has not closed it by then, an error is logged, since the app may
// still be working when the next request of the key runs.
//
// Over HTTP/2 the app is told by RST_STREAM, and cannot report that it has stopped. The key is held
// for 0.15 TTL, unless the app closes the whole connection. A gRPC call is given up as soon as its
// client has left.
//
// While the app does not answer, see worker.App.UpstreamHealth, the worker is off the ring and
// requests are refused. They wait at their routers until another worker has their keys, or the app
// answers.
//
// With worker.App.Batch, JSON requests that wait for a key go to the app together.
func New(w *worker.Worker, target *url.URL) (http.Handler, error) {
	cfg := w.Config()
	app, root := target.String(), strings.Trim(target.Path, "/") == "" && target.RawQuery == ""
	network, addr := "tcp", target.Host
	h2 := target.Scheme == "h2c"
	if h2 {
		plain := *target
		plain.Scheme, target = "http", &plain
	}
	switch {
	case target.Scheme == "unix" && target.Path != "":
		network, addr = "unix", target.Path
		target, root = &url.URL{Scheme: "http", Host: "app"}, true
	case target.Scheme == "http" && target.Host != "":
		if target.Port() == "" {
			addr = net.JoinHostPort(target.Hostname(), "80")
		}
	default:
		return nil, fmt.Errorf("worker: the app's URL is %q, want http://host:port, h2c://host:port or unix:///path", app)
	}
	dialer := &net.Dialer{Timeout: appWait, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, addr) }
	if h2 != cfg.GRPC {
		return nil, fmt.Errorf("worker: App.GRPC is %t, and the app's URL is %s: gRPC needs h2c://, and h2c:// needs App.GRPC", cfg.GRPC, app)
	}
	if h2 && cfg.Batch != "" {
		return nil, errors.New("worker: App.Batch needs an app of HTTP/1.1, and the app's URL is h2c://")
	}
	return newSidecar(w, target, app, root && !h2, h2, dial)
}

// Over is [New] for an app at http://app that dial connects to.
func Over(w *worker.Worker, dial func(context.Context) (net.Conn, error)) (http.Handler, error) {
	return newSidecar(w, &url.URL{Scheme: "http", Host: "app"}, "http://app", true, false, dial)
}

func newSidecar(w *worker.Worker, target *url.URL, app string, root, h2 bool, dial func(context.Context) (net.Conn, error)) (http.Handler, error) {
	health, err := watchApp(w, target, app, h2, dial)
	if err != nil {
		return nil, err
	}
	cfg := w.Config()
	s := &sidecar{app: app, root: root, health: health, errors: cfg.Logger, atApp: cfg.AtApp, grace: lease.Grace(cfg.Members.Settings().WithDefaults().TTL)}
	s.Forwarder = w.Forward(http.HandlerFunc(s.viaProxy), s.takes, s.serveSimple)
	dial = s.atApp.Sharing(health.dialing(dial))
	s.setPool(&s.pool, dial, cfg.AppConnections)
	s.setPool(&s.others, dial, otherAppConns*cfg.AppConnections)
	s.proxy = &httputil.ReverseProxy{
		Transport: &s.others,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			pr.SetURL(target)
			pr.Out.Host = pr.In.Host
			if h2 { // it has none, for a stream
				pr.Out.Header.Del("Upgrade")
				pr.Out.Header.Del("Connection")
			}
			if pr.Out.Trailer = pr.In.Trailer; len(pr.In.Trailer) > 0 { // filled when the body ends
				pr.Out.ContentLength = -1
			}
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := pr.In.Header[name]; ok {
					pr.Out.Header[name] = v
				}
			}
		},
		ErrorHandler: func(rw http.ResponseWriter, r *http.Request, err error) {
			x := s.Held(r.Context())
			if unsent := s.unsent(x.Context, x.Key(), err); unsent != nil {
				rw.(interface{ Unsent(error) }).Unsent(unsent)
			} else {
				s.noAnswer(rw, r, err)
			}
		},
		ErrorLog: slog.NewLogLogger(s.Logger().Handler(), slog.LevelDebug),
	}
	if h2 {
		s.proxy.Transport = s.overH2(dial, otherAppConns*cfg.AppConnections)
	}
	if cfg.Batch != "" {
		if s.batch, err = forwardBatches(s, w, target); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sidecar) setPool(p *hop1.Pool, dial func(context.Context) (net.Conn, error), conns int) {
	p.Dial, p.Conns, p.Wait, p.Idle = dial, conns, appWait, appIdle
	p.Full = func() {
		s.Logger().Warn("requests wait for a connection to the app: all are in use; raise the limit (Limits.AppConnections, --app-connections)", "app", s.app, "connections", conns)
	}
	p.Grace, p.Overdue = s.grace, s.overdue
}

func (s *sidecar) overH2(dial func(context.Context) (net.Conn, error), requests int) *h2Transport {
	t := &h2Transport{sidecar: s}
	t.Dial, t.Requests, t.Wait, t.Idle, t.Grace = dial, requests, appWait, appIdle, s.grace
	t.Full = func() {
		s.Logger().Warn("requests wait for the app: it is at its limit of requests; raise it (Limits.AppConnections, --app-connections)", "app", s.app, "requests", requests)
	}
	return t
}

// Connections to an app.
const (
	otherAppConns = 4                      // as many times Limits.AppConnections for what is no simple request over the link
	appWait       = 5 * time.Second        // for one that is free, and for one to be made
	appIdle       = 900 * time.Millisecond // twice that is less than app servers keep idle ones (gunicorn: 2 s), so that no request meets one that closes
)

// sidecar forwards requests to an app. Simple requests from the link and batches take a short way
// through pool, all others the proxy. Only health and the pools change.
type sidecar struct {
	*worker.Forwarder
	app    string    // for messages
	root   bool      // the app's URL has no path or query
	pool   hop1.Pool // for the short way
	others hop1.Pool // for the proxy
	proxy  *httputil.ReverseProxy
	health *appHealth
	batch  ownPath // to which batches go; nil if each request goes to the app by itself
	errors *slog.Logger
	atApp  *appwork.Record
	grace  time.Duration // for which an app may go on with what was given up
}

// ServeHTTP implements [http.Handler].
func (s *sidecar) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if s.batch.owns(r.URL.RequestURI()) {
		s.Own(problem.BatchPath).ServeHTTP(rw, r)
		return
	}
	s.Forwarder.ServeHTTP(rw, r)
}

// ServeLink implements [link.Handler].
func (s *sidecar) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	if s.batch.owns(r.Target) {
		link.ServeHTTP(r.Context(), w, r, r.Fields.HeaderFor(0), s.Own(problem.BatchPath))
		return
	}
	s.Forwarder.ServeLink(w, r)
}

// takes reports whether a request is of a form that needs nothing of
// net/http: a small body of known length, no trailers.
func (s *sidecar) takes(r *link.ServerRequest) bool {
	return s.root && r.ContentLength >= 0 && r.ContentLength <= hop.MaxRepeatedBody && strings.HasPrefix(r.Target, "/") &&
		http1.SimpleRequest(r.Method, r.Target, r.Host) && r.Fields.Values("Trailer") == nil
}

// serveSimple sends a request on to the app, and passes the answer on.
// A request that the app has not begun with is not answered: the error says why.
func (s *sidecar) serveSimple(w *link.ResponseWriter, r *link.ServerRequest, x worker.Held) (unsent error) {
	body, err := smallBody(x.Context, r)
	switch {
	case err != nil && x.Err() != nil:
		s.noAnswerLink(x.Context, w, r, err)
		return nil
	case err != nil:
		w.Abort() // the app has seen nothing
		return nil
	}
	e := s.pool.Begin()
	defer e.Close()
	e.Method = r.Method
	e.Watched = true
	x.Serve(e)
	defer x.LeaveOff() // before e is closed
	e.Message = append(x.AppendHead(e.Message, r), body...)
	err = s.send(x.Context, e)
	for err == nil && e.Status < 200 {
		if e.Status != http.StatusContinue {
			_ = w.WriteInterim(e.Status, publicFields(nil, e.Fields)) // should it fail, so does the answer
		}
		err = e.Continue()
	}
	if unsent := s.unsent(x.Context, x.Key(), err); unsent != nil {
		return unsent
	}
	if err != nil {
		x.Fail("no-answer")
		s.noAnswerLink(x.Context, w, r, err)
		_ = w.Flush() // before the connection to the app is given up, which may take a while
		return nil
	}
	if end := x.Begin(w, e.Status, e.Fields); end != nil {
		defer end()
	}
	answerFromApp(w, e)
	return nil
}

// send sends a request to the app, if that answers.
func (s *sidecar) send(ctx context.Context, e *hop1.Exchange) error {
	if err := s.health.refusal(); err != nil {
		return err
	}
	return e.Do(ctx)
}

// unsent returns the [gateway.ErrUnavailable] of a request that the app provably has not
// begun with because of err, and that can be sent elsewhere or later; nil for any other.
// One that has waited for a connection has had its time.
func (s *sidecar) unsent(ctx context.Context, key string, err error) error {
	if !errors.Is(err, hop1.ErrNotStarted) || errors.Is(err, hop1.ErrFull) {
		return nil
	}
	requestlog.Failure(ctx, s.Logger(), "the app cannot be reached", "app", s.app, "key", key, "error", err)
	return fmt.Errorf("%w for key %q: the app cannot be reached", gateway.ErrUnavailable, key)
}

// noAnswer answers a request that the app did not answer. The app's address and the error go only
// to the log.
func (s *sidecar) noAnswer(rw http.ResponseWriter, r *http.Request, err error) {
	kind := problem.NoAnswer
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, gateway.ErrOwnershipLost):
		err, kind = cause, problem.OwnershipLost
	case errors.Is(cause, gateway.ErrTimeout):
		err, kind = cause, problem.TimedOut
	case errors.Is(err, hop1.ErrFull):
		kind = problem.AppFull
	}
	warning := "the app did not answer"
	if errors.Is(err, hop1.ErrBrokeOff) {
		warning = ""
	}
	requestlog.Failure(r.Context(), s.Logger(), warning, "app", s.app, "method", r.Method, "path", r.URL.Path, "error", err)
	s.Own(kind).ServeHTTP(rw, r)
}

// noAnswerLink is noAnswer for a request over the link.
func (s *sidecar) noAnswerLink(ctx context.Context, w *link.ResponseWriter, r *link.ServerRequest, err error) {
	link.ServeHTTP(ctx, w, r, r.Fields.HeaderFor(0), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.noAnswer(rw, r, err)
	}))
}

// viaProxy sends a request to the app with net/http. It returns when the app's
// connection is done with, which the proxy itself does not wait for.
func (s *sidecar) viaProxy(rw http.ResponseWriter, r *http.Request) {
	proxy, a := *s.proxy, &appAnswer{sidecar: s}
	proxy.Transport = a
	defer a.endBody()
	proxy.ServeHTTP(rw, r)
	if a.brokeOff {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
}

// appAnswer is the body of an app's answer to the proxy, whose transport it is for one request.
type appAnswer struct {
	io.ReadCloser // nil before there is an answer
	sidecar       *sidecar
	call          *grpcAnswer // nil if it is none
	brokeOff      bool
}

func (a *appAnswer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if errors.Is(err, appstate.ErrStreamEnds) { // it ends between two reads of it, for the client in order
		err = io.EOF
	}
	if a.call != nil {
		err = a.call.follow(p[:n], err)
	}
	a.brokeOff = err != nil && err != io.EOF
	return n, err
}

func (a *appAnswer) endBody() {
	if a.ReadCloser != nil {
		a.Close()
	}
}

// RoundTrip implements [http.RoundTripper].
func (a *appAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := a.sidecar.health.refusal(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	res, err := a.sidecar.proxy.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	a.ReadCloser, a.call = res.Body, newGRPCAnswer(res)
	if conn, ok := res.Body.(halfCloser); ok {
		res.Body = &upgraded{conn, a.sidecar.Held(r.Context())}
	} else {
		res.Body = a
	}
	return res, nil
}

type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// upgraded is the connection to an app after a change of protocol. A client
// that has ended its side of it has left.
type upgraded struct {
	halfCloser
	held worker.Held
}

func (u *upgraded) CloseWrite() error {
	u.held.ClientLeft()
	return u.halfCloser.CloseWrite()
}

// overdue reports an app that has not closed its connection in time.
func (s *sidecar) overdue(ctx context.Context) {
	x := s.Held(ctx)
	if x.Streams() {
		return // it holds no key
	}
	s.atApp.Lose()
	s.errors.Error("the app did not close a connection that the worker gave up: the key is free although the app may still work for it; an app must end a request when its connection closes",
		"app", s.app, "key", x.Key(), "partition", x.Partition(), "token", x.Token(), "waited", s.grace)
}
