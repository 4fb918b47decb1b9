// Package lockservice is for programs that have a router: it gives callers in any language the
// locks of its cluster over HTTP.
//
// A [Service] keeps no state between two requests: the id and token of a lock find it at its
// owner. request.go reads a request, calls.go asks the owners of its keys, and lockservice.go
// answers. A [Server] serves it with bounded connections (server.go).
package lockservice

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/access"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// Config configures a [Service].
type Config struct {
	// Token, if set, is required of requests in the header Authorization, after Bearer. Default:
	// requests must come from this machine, over a loopback address or a Unix socket.
	Token string

	// Hosts are names of this process for requests without Token, in addition to localhost and its
	// addresses. Default: none.
	Hosts []string

	// MaxWaiting bounds the requests that wait for their keys at one time. Default 10,000.
	MaxWaiting int

	// MaxConnections bounds the connections of a [Server]. 128 of the files that the process may
	// open (RLIMIT_NOFILE), or a quarter if that is more, are kept for other uses. Default: half of
	// the rest.
	MaxConnections int

	// TracerProvider makes spans of requests. TraceKeys adds keys to them as well as their hashes.
	// Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	Logger *slog.Logger // default: discard
}

// sender is a router.Router, whose connections to workers a [Service] uses.
type sender interface{ Workers() *send.Workers }

// Service is an [http.Handler] for locks: clients in any language lock keys for a time that they
// choose. docs/lock-service.md explains it, and its page /openapi.yaml describes all requests.
//
// A lock and requests for its key exclude each other; all wait in one queue. The key's owner holds
// the lock and ends it when its time is over. The Service keeps no state between requests and
// renews nothing, so requests for one lock may go to different routers. It is a
// [prometheus.Collector]. Make one with [New]. Apart from its counters only Leave changes it.
type Service struct {
	workers  *send.Workers
	cfg      Config
	log      *slog.Logger // for what clients can bring about
	spans    *spans.Maker // nil for none
	base     time.Time    // the service's start
	counters lockCounters
	leaving  context.Context // of requests for locks; ends with Leave
	leave    context.CancelCauseFunc
}

// errLeaving is the cause of requests for locks that [Service.Leave] ends.
var errLeaving = refuse(problem.Of(problem.Leaving), "the service ends")

// New returns the lock service of a cluster. through, a router.Router, sends its calls there.
func New(through sender, cfg Config) *Service {
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 10_000)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, conns.Default(conns.MaxOpenFiles()))
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Service{workers: through.Workers(), cfg: cfg, spans: spans.New(cfg.TracerProvider, cfg.TraceKeys), base: time.Now()}
	s.log = requestlog.New(cfg.Logger)
	s.leaving, s.leave = context.WithCancelCause(context.Background())
	return s
}

// Leave makes requests for locks fail with 503, waiting and later ones. Locks can still be renewed
// and unlocked. Leave may be called more than once.
func (s *Service) Leave() { s.leave(errLeaving) }

// lockOperation is what a request for a lock wants.
type lockOperation uint8

const (
	opLock lockOperation = iota
	opExtend
	opUnlock
	opInspect
	opOther // none of these
	lockOperations
)

func (o lockOperation) String() string {
	return [lockOperations]string{"lock", "extend", "unlock", "inspect", "other"}[o]
}

var lockMethods = map[string]lockOperation{
	http.MethodPost: opLock, http.MethodPut: opExtend, http.MethodDelete: opUnlock, http.MethodGet: opInspect,
}

// lockCounters count requests.
type lockCounters struct {
	waiting  atomic.Int64 // may wait for their keys
	answered [lockOperations][len(lockCodes)]atomic.Int64
}

// lockCodes are the statuses of answers of a lock service; the last one stands for all others.
var lockCodes = [...]int{200, 204, 400, 401, 403, 404, 405, 410, 422, 423, 429, send.StatusClientGone, 503, 508, 502}

func (c *lockCounters) count(op lockOperation, status int) {
	i := slices.Index(lockCodes[:], status)
	if i < 0 {
		i = len(lockCodes) - 1
	}
	c.answered[op][i].Add(1)
}

//go:embed openapi.yaml
var lockAPI []byte

// lockPath is where keys are. The key of a single lock stands behind it.
const lockPath = "/v1/locks"

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	op := opOther
	defer func() { s.counters.count(op, rw.status) }()
	if s.spans != nil {
		var span trace.Span
		r, span = s.beginLockRequest(r)
		defer func() { endLockRequest(span, rw.status) }()
	}
	path := r.URL.EscapedPath()
	switch verdict := (access.Rules{Token: s.cfg.Token, Hosts: s.cfg.Hosts}).Of(r); {
	case path == "/openapi.yaml" && r.Method == http.MethodGet:
		rw.Header().Set("Content-Type", "application/yaml")
		_, _ = rw.Write(lockAPI) // the client may have left
	case verdict == access.OtherSite:
		problem.Of(problem.OtherSite).ServeJSON(rw)
	case verdict == access.OtherHost:
		problem.Of(problem.OtherSite).With(access.AskByAddress).ServeJSON(rw)
	case verdict == access.NotHere:
		problem.Of(problem.NotFromHere).ServeJSON(rw)
	case verdict == access.NoToken:
		rw.Header().Set("WWW-Authenticate", "Bearer")
		problem.Of(problem.NoToken).ServeJSON(rw)
	case path != lockPath && !strings.HasPrefix(path, lockPath+"/"):
		problem.Of(problem.NoRoute).With("locks are at " + lockPath + "/KEY, their description at /openapi.yaml").ServeJSON(rw)
	default:
		op = s.serve(rw, r, path != lockPath)
	}
}

// statusWriter records the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve answers a request about one key, or about several.
func (s *Service) serve(rw *statusWriter, r *http.Request, single bool) lockOperation {
	op, known := lockMethods[r.Method]
	if !known || op == opInspect && !single {
		allowed := "DELETE, POST, PUT"
		if single {
			allowed = "DELETE, GET, POST, PUT"
		}
		rw.Header().Set("Allow", allowed)
		problem.Of(problem.OtherMethod).ServeJSON(rw)
		return opOther
	}
	q, err := parseLockRequest(r, op, single)
	if err != nil {
		if r.ContentLength != 0 {
			rw.Header().Set("Connection", "close") // nothing of a body is read
		}
		problemOf(err).ServeJSON(rw)
		return op
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if op == opLock {
		defer context.AfterFunc(s.leaving, func() { cancel(errLeaving) })()
	}
	answer, err := s.do(ctx, op, q)
	switch {
	case r.Context().Err() != nil:
		rw.status = send.StatusClientGone
	case err != nil:
		requestlog.Failure(ctx, s.log, "", "operation", op, "keys", len(q.keys), "error", err)
		problemOf(err).ServeJSON(rw)
		return op
	case rw.send(answer) == nil:
		return op
	}
	if op == opLock && err == nil {
		s.giveUp(q, q.keys, nil) // nobody can be told of them
	}
	return op
}

// send sends an answer, nil for one without content.
func (w *statusWriter) send(answer any) error {
	w.Header().Set("Cache-Control", "no-store")
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// lockAnswer says that keys are locked.
type lockAnswer struct {
	Key    string           `json:"key,omitempty"` // of one key
	Lease  string           `json:"lease"`
	Token  int64            `json:"token,omitempty"`  // of one key
	Tokens map[string]int64 `json:"tokens,omitempty"` // of several, by key
	TTL    int64            `json:"ttl_ms"`           // for how long yet, in ms
}

// stateAnswer says who has a key.
type stateAnswer struct {
	problem.Holder
	Held  bool  `json:"held"`
	Token int64 `json:"token"`
}

// do does what a request wants, and returns what it is answered with.
func (s *Service) do(ctx context.Context, op lockOperation, q *lockRequest) (any, error) {
	switch op {
	case opLock:
		if s.leaving.Err() != nil {
			return nil, errLeaving
		}
		defer s.counters.waiting.Add(-1)
		if s.counters.waiting.Add(1) > int64(s.cfg.MaxWaiting) {
			return nil, send.ErrBusy
		}
		return s.lock(ctx, q)
	case opExtend:
		return s.extend(ctx, q)
	case opUnlock:
		return nil, s.unlock(ctx, q)
	}
	o, err := s.inspect(ctx, q.keys[0])
	if err != nil {
		return nil, err
	}
	return stateAnswer{holderOf(q.keys[0], o), o.Held, o.Token}, nil
}

// holderOf returns a worker's answer in the form for clients.
func holderOf(key string, o holds.Occupancy) problem.Holder {
	h := problem.Holder{Key: key, Holder: o.Label, Readers: o.Shared, TTL: o.Left.Milliseconds(), Waiting: o.Waiting}
	switch {
	case o.Lock:
		h.Kind = "lock"
	case o.Held:
		h.Kind = "request"
	}
	return h
}

// lockRounds is how often a key is asked for again that took long to come.
const lockRounds = 3

// lock locks all keys of q, one after the other in their order, or none. A grant that took long, or
// is old when the last one arrives, is requested again, which returns the existing lock. The answer
// is therefore right about how long the locks hold.
func (s *Service) lock(ctx context.Context, q *lockRequest) (any, error) {
	grants := make([]lockGrant, 0, len(q.keys))
	for range lockRounds {
		for i, key := range q.keys {
			if i < len(grants) && s.now().Mono-grants[i].sent.Mono < grants[i].lasts/5 {
				continue // what it says is nearly as true as when it came
			}
			g, err := s.acquire(ctx, q, key)
			if err != nil {
				isHeld := errors.Is(err, gateway.ErrLocked)
				asked := slices.DeleteFunc(slices.Clone(q.keys[:q.asked]), func(k string) bool { return isHeld && k == key })
				s.giveUp(q, asked, q.keys[:len(grants)])
				return nil, err
			}
			if i == len(grants) {
				grants = append(grants, g)
			}
			grants[i] = g
		}
	}
	a, err := s.answer(q, grants)
	if err != nil {
		s.giveUp(q, q.keys, q.keys)
	}
	return a, err
}

func (s *Service) answer(q *lockRequest, grants []lockGrant) (any, error) {
	a := lockAnswer{Lease: q.lease.String()}
	left := grants[0].left(s.now())
	for i, g := range grants {
		left = min(left, g.left(s.now()))
		if q.single {
			a.Key, a.Token = q.keys[i], g.token
			continue
		}
		if a.Tokens == nil {
			a.Tokens = make(map[string]int64)
		}
		a.Tokens[q.keys[i]] = g.token
	}
	if a.TTL = left.Milliseconds(); a.TTL <= 0 {
		return nil, errLockGone
	}
	return a, nil
}

// now returns the time on both clocks.
func (s *Service) now() lease.Instant { return lease.At(s.base, time.Now()) }

// errLockGone says that a key is not held with the caller's lease.
var errLockGone = refuse(problem.Of(problem.LockGone), "%w: the key is not locked with this lease", locking.ErrNotOwner)

// refused is an error with the answer that the client reads.
type refused struct {
	error
	answer problem.Problem
}

func refuse(answer problem.Problem, format string, args ...any) error {
	return &refused{fmt.Errorf("lockservice: "+format, args...), answer}
}

func (e *refused) Unwrap() error { return e.error }

// problemOf returns what a client reads of an error.
func problemOf(err error) problem.Problem {
	r, isRefused := errors.AsType[*refused](err)
	switch {
	case isRefused:
		return r.answer
	case errors.Is(err, gateway.ErrNoKey), errors.Is(err, gateway.ErrBadKey):
		return problem.OfKey(err, nil)
	}
	kind, _ := send.KindOf(err)
	return problem.Of(kind)
}
