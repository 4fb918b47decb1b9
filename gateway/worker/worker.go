// Package worker runs requests with their keys held. A [Worker] takes part in
// the ownership protocol: it claims the partitions that the ring gives it, and
// runs one execution of a key at a time.
//
// A [Worker] is joining, active, drained or leaving, as its members see it. One goroutine, the
// shell, changes that: it steps the ownership machine of ring/handoff with what the store, the
// members and the clock say, and carries out what the machine orders. Everything else only
// posts to it, so ownership has one writer. The worker is drained while an operator wants it off
// the ring, and joining again while the app behind it does not answer. It leaves once and for good.
//
// An incarnation is one life of a Worker, with one session in the store. It admits keys until
// its lease's admit deadline, which each confirmed renewal moves on. A lost session is never taken
// up again: the shell begins another incarnation, and the old one only waits for what still runs.
//
// A partition is open or closed. The shell opens it when the store's record names this
// incarnation, and closes it before it gives it away. Closing and listing the keys that run is one
// step, so that no request slips in between.
//
// An execution waits for its key, runs, and ends. The partition's keyed mutex grants keys in the order of
// arrival. The lease is compared before and after the wait, as it may have run out
// meanwhile. A call that would wait for itself or close a cycle of waits is refused. A running
// execution is cancelled when its worker may no longer own the key, or when its time is over.
// It holds the key until its handler has returned or, behind a sidecar, until the app has
// answered or is given up.
//
// A lock is an execution's counterpart for a caller elsewhere: held, or waited for, in the
// same queue. It moves along with its partition, and ends when it is unlocked or its lease expires.
//
// The app behind a sidecar is up or down. A goroutine probes it. An app that is down takes the
// worker off the ring, so that other workers serve its keys.
//
// A batch is a group of calls for one key that one execution answers together: a [Batcher] collects
// those that wait. A flight is a call whose result equal calls share ([Share]); it is forgotten
// while the key is still held, since a later caller may see newer data.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/requestlog"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
	"github.com/keyway-go/keyway/ring/lease"
)

// Store keeps the sessions and records that decide who owns what. Package
// fallback implements it over Redis, over an embedded server, and in memory.
// Every method is safe for concurrent use, and idempotent. An error that wraps
// [handoff.ErrGeneration] or [handoff.ErrSessionGone] says that nothing was
// applied; any other leaves that open.
type Store interface {
	// Settings returns the settings that the store was opened with.
	// Their identity of the store is 0 until Generation has learnt it, and then
	// what the latest has found: the same in all processes that use the store.
	// A store that has none, 0 for good, is not compared.
	Settings() ring.Settings
	// Exists returns an error that wraps [ring.ErrSettings] if the store is
	// empty and was not known to the process before. It changes nothing.
	Exists(ctx context.Context) error
	// Generation returns the generation of the store's data, after having
	// begun a new one where the data is of another life of the server.
	Generation(ctx context.Context) (string, error)
	// Register creates the session, or creates it anew after a loss of data,
	// and asserts what it holds, in one step. It returns the state of each
	// holding's partition.
	Register(ctx context.Context, generation string, s handoff.Session, ttl time.Duration, holdings []handoff.Holding) ([]handoff.PartitionState, error)
	// Renew extends a session that exists.
	Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) error
	// Release ends the session for good.
	Release(ctx context.Context, incarnation string) error
	// Apply applies each change by itself and returns the partitions' states.
	Apply(ctx context.Context, generation, incarnation string, changes []handoff.Change) ([]handoff.PartitionState, error)
	// Clear removes exactly these entries of the partition's residue.
	Clear(ctx context.Context, generation string, partition int, residue []handoff.Residue) error
	// ClearLocks forgets locks that moves have written.
	ClearLocks(ctx context.Context, generation string, moves []handoff.Move) error
	// WriteLocks writes and removes locks that the store keeps, and returns the number
	// of each partition's latest write that was made.
	WriteLocks(ctx context.Context, generation, incarnation string, writes []handoff.LockWrite) ([]handoff.WriteNumber, error)
	// Observe reads what has changed since a version, in one step.
	Observe(ctx context.Context, generation, incarnation string, since int64) (handoff.Snapshot, error)
	// Watch returns a channel that receives when there is something to
	// observe, and perhaps when there is not. It is closed when ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

// Config configures a [Worker]. Members and Store are required. A number or a
// duration of 0 stands for the default; a negative one is an error of [Start].
type Config struct {
	Members gateway.Members // as a member with a Name, and an Addr on which the worker takes requests
	Store   Store           // opened with the settings of Members

	// NewCluster skips the worker's own wait of one TTL before its first claim on
	// a store in which nothing was ever claimed. What the store itself asks to
	// wait stays, see store.Config. It is for the first start of a cluster, and
	// for a store that was begun when it was started, on the machine of all its
	// workers.
	NewCluster bool

	// ServeWithoutStore keeps serving past the lease while the store cannot be
	// reached and the view of the cluster does not change. It is unsafe when
	// the network is cut in two. Default: stop at the admit deadline.
	ServeWithoutStore bool

	// Previous are incarnations of which the caller can prove that their
	// processes are dead. They are released on start, so that what they owned
	// is taken over at once.
	Previous []string

	// PreviousApp says that the Previous were sidecars, whose app may have
	// outlived them: they are released 0.15 TTL after the start, by when the app
	// must have ended what it did for connections that are closed.
	PreviousApp bool

	// OnIncarnation is called with the id of each incarnation before that can
	// own anything, so that it can be written down for Previous. Its error ends
	// Start; later ones are logged. Default: nothing.
	OnIncarnation func(id string) error

	// OnHold is called before an incarnation promises keys to other members for the
	// first time (router.Client.Hold): they may work on for a TTL after this
	// process has died, so the incarnation must not be one of a later process's
	// Previous. While it fails, and where it is nil although OnIncarnation is not,
	// such calls fail. Default: nothing.
	OnHold func(id string) error

	// OnPeers is called with the gossip addresses of the store's live sessions
	// when they change: members to join that gossip may have lost sight of. It
	// must not block. Default: nothing.
	OnPeers func(gossip []string)

	// Direct makes a [Server] take requests that did not come through a router, or
	// from another member of the cluster. Default: they get 403, as any of them
	// could choose the key that it holds.
	Direct bool

	// PeerTLS has a [Server] take connections over TLS only: those of members, who show
	// a certificate, and with Direct others, who need none. The settings of Members must
	// say that members speak TLS too. If it is optional, connections without TLS are taken
	// as by default, when it takes only these.
	PeerTLS *gateway.PeerTLS

	// Keys find the key in such requests. Default: the header
	// [gateway.HeaderKey], percent-encoded.
	Keys gateway.KeySources

	// Upgrades are the protocols to which a client and an app may change, as in
	// router.Config. Default: websocket; empty but not nil: none.
	Upgrades []string

	QueuePerKey  int           // requests that may wait for one key; default 1000
	Queue        int           // requests that may wait for any key; default 100,000; see StreamsPerLink
	MaxAwaiting  int           // requests that may wait for a partition to arrive; default 10,000
	AwaitTimeout time.Duration // and how long, if it can be sent elsewhere; default 2 s

	// MaxWait bounds every wait for a key: of a call in this program, such as
	// [Worker.Do], also while nobody serves the key yet, and of a request, which
	// gets 503 with Retry-After then. Default 30 s.
	MaxWait time.Duration

	// MaxHolds bounds the keys that are held here for other members, or that these
	// wait for. What exceeds it fails with [ErrBusy], and so does what exceeds about 1 MiB of
	// keys and labels in one partition, with which they move. Default 1,000,000.
	MaxHolds int

	// MaxLease bounds the lease for which a member may hold a key without renewing it. One
	// that is longer than the session TTL is written to the store, and outlives this worker.
	// More is refused. Default 24 h, or the session TTL if that is longer.
	MaxLease time.Duration

	// SlowKey is how long a key may be held, or waited for, until that is logged
	// once, with the token of the execution that holds it: within a half more of
	// it, and at most 16 keys at a time. Default 10 s.
	SlowKey time.Duration

	// StreamsPerLink is how many requests [Server] takes at once on one link. At
	// most half of them may wait for a key, or for a partition to arrive: what
	// exceeds that fails with [ErrBusy], so that requests for other keys get
	// through. Default 4096.
	StreamsPerLink int

	// AppConnections bounds the connections to the app behind a [Worker.Sidecar]
	// for simple requests that come over the link: one for each request under way.
	// For all others together, such as upgraded ones and bodies of unknown length,
	// it is four times as many. A request over the bound waits for 5 s, which is
	// logged, and fails then with 503 and Retry-After: it has not reached the app.
	// Default 4096.
	AppConnections int

	// AnswerMemory and AnswerFiles bound, in bytes, those parts of answers that
	// their clients have not read yet, in memory and in temporary files: an app's
	// answer is taken at the app's speed, and the key is free at its end, however
	// slowly the client reads. AnswerMax bounds them for one answer, and
	// a quarter of each is there for one client of a router. Where there is no more
	// room the app waits, with its key held, for as long as Timeout allows.
	// Default 64 MiB, 4 GiB or half of what is free in [os.TempDir] if that is less,
	// and 1 GiB.
	AnswerMemory, AnswerFiles, AnswerMax int64

	// GRPC says that the handler takes calls of gRPC over HTTP/2: their
	// bodies reach it as they come, with the key held. Routers learn it by gossip.
	// A [Worker.Sidecar] needs it if its app's URL is h2c://, and refuses it for other apps.
	// Default: bodies are read whole before their keys are asked for.
	GRPC bool

	// MaxBody is how many bytes the body of a request may have that comes to a
	// [Server] of the worker over plain HTTP. It is read whole before its key is asked
	// for, unless it is one of gRPC (see GRPC). Default 1 GiB.
	MaxBody int64

	// BodyFiles bounds the bytes of temporary files for what of such bodies is not
	// in memory, 64 KiB of each at most. What exceeds it is answered with 503. Default:
	// 4 GiB, or half of what is free in BodyDir if that is less.
	BodyFiles int64

	// BodyDir is where those files are. Default: [os.TempDir]; if no file can be made
	// there, bodies are in memory only, as far as 64 MiB are enough for all.
	BodyDir string

	// MaxConnections bounds the connections to a [Server] of the worker. An eighth
	// of them is for routers' links, where those over the bound are refused, and
	// another eighth for connections of which it is not known yet whether they are
	// links, or that wait to be accepted: there the one that has waited longest, and
	// for a second at least, is closed for another one. All other connections over
	// their bound wait, while those that have been without a request for longest, and
	// for a second at least, are ended. Default: half of the files that the process
	// may have open (RLIMIT_NOFILE), less 128 or a quarter, whichever is more; a
	// request may need a connection to an app too. More than all of these is warned
	// of.
	MaxConnections int

	// Timeout bounds each execution of a request that [Worker.Handler] or
	// [Worker.Sidecar] takes, from the moment at which it gets its key; not the
	// calls of this program, such as [Worker.Do], which have their contexts. An
	// execution that has taken it is cancelled with cause [ErrTimeout], which may be
	// noticed a tenth of it later, or 0.1 s if that is less, and its client gets 504
	// if it has no answer yet. Behind a sidecar the key is free when the app has
	// closed the connection, or 0.15 TTL later. A handler that goes on without its
	// context keeps the key. A stream that holds its key counts too. Default 1 min.
	Timeout time.Duration

	// AbandonedTimeout is how long the app behind a [Worker.Sidecar] may go on
	// with a request whose client has left, before its connection is given up
	// and the key is free. It also bounds for how long a stream goes on whose client
	// has closed its side. Leave an ordinary request the time to finish: an app
	// that ignores the end of its connection would work on beside the next one.
	// Default 1 min, for which proxies commonly let an app be silent; a tenth of
	// it or two may pass until it is noticed.
	AbandonedTimeout time.Duration

	// UpstreamHealth is a path of the app behind a [Worker.Sidecar], such as /healthz.
	// The app is asked for it by a GET request every second, and every 100 ms while it
	// fails, or just after a connection to it failed. It is up if the answer comes
	// within a second with a status of 2xx or 3xx, and down after two failures in a
	// row. An app that goes down again within 5 min of having come up has to answer
	// for 1 s, after the next time for 2 s, and so on up to 1 min, until the worker
	// joins others on the ring. Default: it is up if a connection can be made.
	UpstreamHealth string

	// AwaitApp keeps the worker off the ring until [Worker.Sidecar] was called and its
	// app has answered. Without it the app counts as up until it was asked.
	AwaitApp bool

	// Batch is a path of the app behind a [Worker.Sidecar], such as /batch. If it is
	// set, the POST requests that wait for one key and have a JSON body of known
	// length, at most 64 KiB, go to the app together: as one POST to the path with
	// an array of them, which the app answers with an array (docs/batch.md). Batches
	// bounds them. Default: each goes to the app by itself.
	Batch   string
	Batches BatchConfig

	// TracerProvider makes spans of executions (docs/observability.md), as parts of the
	// traces that requests name in the field Traceparent, or of the spans of callers' contexts. It
	// is the caller's to shut down. TraceKeys puts keys into spans, and not only their hashes.
	// Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	Logger *slog.Logger // default: discard
}

// WithDefaults returns c with defaults in place of what is 0 or nil.
func (c Config) WithDefaults() Config {
	c, _ = c.complete()
	return c
}

// complete is WithDefaults, and returns an error about a negative field.
func (c Config) complete() (_ Config, err error) {
	hop.Default(&err, "worker: Config.QueuePerKey", &c.QueuePerKey, 1000)
	hop.Default(&err, "worker: Config.Queue", &c.Queue, 100_000)
	hop.Default(&err, "worker: Config.MaxAwaiting", &c.MaxAwaiting, 10_000)
	hop.Default(&err, "worker: Config.AwaitTimeout", &c.AwaitTimeout, 2*time.Second)
	hop.Default(&err, "worker: Config.MaxWait", &c.MaxWait, 30*time.Second)
	hop.Default(&err, "worker: Config.MaxHolds", &c.MaxHolds, 1_000_000)
	hop.Default(&err, "worker: Config.MaxLease", &c.MaxLease, 24*time.Hour)
	hop.Default(&err, "worker: Config.SlowKey", &c.SlowKey, 10*time.Second)
	hop.Default(&err, "worker: Config.StreamsPerLink", &c.StreamsPerLink, 4096)
	hop.Default(&err, "worker: Config.AppConnections", &c.AppConnections, 4096)
	hop.Default(&err, "worker: Config.AnswerMemory", &c.AnswerMemory, 64<<20)
	hop.Default(&err, "worker: Config.AnswerMax", &c.AnswerMax, 1<<30)
	hop.Default(&err, "worker: Config.MaxBody", &c.MaxBody, 1<<30)
	hop.Default(&err, "worker: Config.BodyFiles", &c.BodyFiles, spool.DefaultFiles(c.BodyDir))
	hop.Default(&err, "worker: Config.MaxConnections", &c.MaxConnections, conns.Default(conns.MaxOpenFiles()))
	hop.Default(&err, "worker: Config.Timeout", &c.Timeout, time.Minute)
	hop.Default(&err, "worker: Config.AbandonedTimeout", &c.AbandonedTimeout, time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, err
}

// Worker owns partitions and runs one execution at a time per key of them.
// Start one with [Start].
type Worker struct {
	cfg       Config
	name      string       // in Config.Members
	log       *slog.Logger // for what clients can bring about
	flushLog  func()
	fields    fields.Rules
	answers   *spool.Pool
	shares    *spool.Shares                                              // of answers
	bodies    *spool.Pool                                                // of requests over plain HTTP
	answer    func(client uint64, send func([]byte) error) link.Overflow // overflow, as a value
	settings  ring.Settings
	parts     []partition
	lease     atomic.Pointer[handoff.Lease]
	outlook   atomic.Pointer[handoff.Outlook] // of the present incarnation
	base      time.Time                       // origin of the monotonic clock in handoff.Instant
	awaiting  atomic.Int64
	draining  atomic.Bool
	offRing   atomic.Bool           // it was told to leave the ring, see LeaveRing
	settled   atomic.Bool           // the present incarnation has served all that the ring gave it
	trouble   atomic.Pointer[error] // why the worker does not begin, or has stopped
	flights   flights
	births    atomic.Uint64 // of executions' contexts
	keyless   atomic.Uint64 // requests that hold no key
	collapses atomic.Uint64 // see collapsible.came
	graph     waitGraph
	batches   atomic.Bool // there is a handler of requests that are submitted to a batcher
	slow      slowKeys
	apps      struct {
		mu   sync.Mutex
		list []*appHealth // guarded by mu
	}
	shell    *shell
	watching sync.Once // starts cancelOverdue
	locks    locks
	policies policies
	rates    rates
	claims   claims
	queue    *localmutex.Queue // of all partitions
	counts   counts
	spans    *spans.Maker // nil for none
	hot      hotKeys

	confirming func() // called between the two comparisons of confirm; nil but in tests
}

// Start starts a worker: it registers a session in the store, begins to own what
// the ring gives it, and goes on until [Worker.Close], which the caller must call.
// ctx bounds Start only: it tells the members of the worker's first incarnation,
// after Config.OnIncarnation, and does not wait for the store, see [Worker.Await].
func Start(ctx context.Context, cfg Config) (*Worker, error) {
	cfg, err := cfg.complete()
	switch {
	case err != nil:
		return nil, err
	case cfg.Members == nil:
		return nil, errors.New("worker: Config.Members is missing")
	case cfg.Store == nil:
		return nil, errors.New("worker: Config.Store is missing")
	}
	self := cfg.Members.Self()
	if self.Name == "" || self.Addr == "" {
		return nil, errors.New("worker: the member of Config.Members has no Name or no Addr")
	}
	fields, err := fields.NewRules(cfg.Keys, cfg.Upgrades)
	if err != nil {
		return nil, err
	}
	if err := hop.CheckPeerTLS("worker: Config.PeerTLS", cfg.PeerTLS, cfg.Members); err != nil {
		return nil, err
	}
	settings := cfg.Members.Settings().WithDefaults()
	if d, differ := settings.Compare(cfg.Store.Settings()); differ {
		return nil, fmt.Errorf("worker: %w: %s: %s among the members, %s in the store: give both the same ring.Settings", ring.ErrSettings, d.Setting, d.Ours, d.Theirs)
	}
	answers, err := spool.NewPool(spool.Config{Memory: cfg.AnswerMemory, Files: cfg.AnswerFiles, PerSpool: cfg.AnswerMax})
	if err != nil {
		return nil, fmt.Errorf("worker: Config.AnswerMemory, AnswerFiles or AnswerMax: %w", err)
	}
	bodies, err := spool.NewPool(spool.Config{Files: cfg.BodyFiles, PerSpool: cfg.MaxBody, Dir: cfg.BodyDir})
	if err != nil {
		return nil, fmt.Errorf("worker: Config.BodyDir: %w", err)
	}
	conns.WarnOfFiles(cfg.Logger, cfg.MaxConnections)
	w := &Worker{cfg: cfg, name: self.Name, settings: settings, fields: fields, base: time.Now(), parts: make([]partition, settings.Ring.Partitions), spans: spans.New(cfg.TracerProvider, cfg.TraceKeys)}
	w.answers, w.shares, w.answer, w.bodies = answers, answers.Shares(answerShare), w.overflow, bodies
	w.log, w.flushLog = requestlog.New(cfg.Logger)
	w.queue = &localmutex.Queue{PerKey: cfg.QueuePerKey, Total: cfg.Queue, MaxWait: cfg.MaxWait}
	w.locks.worker, w.rates.most = w, maxBuckets
	w.hot.init(w.Queued)
	for i := range w.parts {
		p := &w.parts[i]
		p.worker, p.number, p.table.Queue = w, i, w.queue
		p.table.Close()
	}
	w.slow.worker = w
	w.lease.Store(new(handoff.Lease))
	w.outlook.Store(new(handoff.Outlook))
	if w.shell, err = startShell(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// Await waits until the worker serves every partition that the ring gives it,
// or knows that the ring gives it none, for the first time. After a crash of
// the partitions' former owner that takes a session TTL. It does not wait for an app
// that does not answer: the error is an [ErrAppDown] then, once the worker has a
// session.
func (w *Worker) Await(ctx context.Context) error {
	registered := w.shell.registered
	for {
		select {
		case <-w.shell.settled:
			return nil
		case <-registered:
			registered = nil
			if err := w.askApps(ctx); err != nil {
				return fmt.Errorf("worker: %s takes no keys yet: %w", w.name, err)
			}
		case <-w.shell.refused:
			return fmt.Errorf("worker: %s may not begin: %w", w.name, w.shell.refusal)
		case <-w.shell.ctx.Done():
			return fmt.Errorf("worker: %s was closed", w.name)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", w.unsettled(), context.Cause(ctx))
		}
	}
}

// Ready returns nil while the worker admits requests, and otherwise why not. A
// worker whose present incarnation has not yet served all that the ring gives
// it is not ready; partitions that come later do not change that.
func (w *Worker) Ready() error {
	appDown := w.appTrouble(w.settled.Load())
	switch {
	case w.draining.Load():
		return errors.New("worker: the worker is leaving")
	case w.trouble.Load() != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, *w.trouble.Load())
	case !w.admits(time.Now()):
		return w.shell.calls.because(fmt.Errorf("%w: its session is not confirmed by the store", ErrUnavailable))
	case appDown != nil:
		return fmt.Errorf("worker: %s takes no keys: %w", w.name, appDown)
	case w.offRing.Load():
		return fmt.Errorf("worker: %s was drained: it is off the ring until it is told to come back", w.name)
	case !w.settled.Load():
		return w.unsettled()
	}
	return nil
}

// unsettled says what the worker still waits for.
func (w *Worker) unsettled() error {
	given, served, onRing := w.share(w.Incarnation())
	switch {
	case !w.admits(time.Now()):
		return w.shell.calls.because(fmt.Errorf("worker: %s has no session in the store", w.name))
	case !onRing:
		if err := w.appTrouble(false); err != nil {
			return fmt.Errorf("worker: %s takes no keys: %w", w.name, err)
		}
		return fmt.Errorf("worker: %s is not yet on the ring", w.name)
	}
	why := ""
	if wait, what := w.obstacle(handoff.Record{}); what != "" {
		why = fmt.Sprintf(": %s (%v left)", what, wait.Round(100*time.Millisecond))
	}
	return fmt.Errorf("worker: %s serves %d of the %d partitions that the ring gives it%s", w.name, served, given, why)
}

// share returns how many partitions the ring gives an incarnation, how many of
// these it serves, and whether it is on the ring at all.
func (w *Worker) share(incarnation string) (given, served int, onRing bool) {
	view := w.cfg.Members.View()
	onRing = slices.ContainsFunc(ring.ActiveWorkers(view.Members), func(m ring.Member) bool { return m.Incarnation == incarnation })
	for i := range w.parts {
		if m, ok := view.Owner(i); ok && m.Incarnation == incarnation {
			given++
			if w.parts[i].open.Load() {
				served++
			}
		}
	}
	return given, served, onRing
}

// Incarnation returns the id of the worker's present session.
func (w *Worker) Incarnation() string { return *w.shell.incarnation.Load() }

func (w *Worker) instant(t time.Time) handoff.Instant {
	return lease.At(w.base, t)
}

func (w *Worker) admits(t time.Time) bool { return w.lease.Load().Admits(w.instant(t)) }

// grace is how long an execution may go on that was cancelled.
func (w *Worker) grace() time.Duration {
	return lease.Grace(w.settings.TTL)
}

// Drain takes the worker off the ring, hands its partitions over, waits for the
// executions that run, and releases the session, so that nobody has to wait for
// it to expire. Half-way to ctx's deadline it stops waiting for workers that
// take the partitions and only finishes what runs.
//
// If ctx ends first, Drain returns an error that says what still runs, and the
// session is not released: it expires by itself. Call Close in either case.
func (w *Worker) Drain(ctx context.Context) error {
	w.shell.post(nil, handoff.Leave{})
	var half <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = time.After(time.Until(deadline) / 2)
	}
	for {
		select {
		case <-w.shell.gone:
			return nil
		case <-half:
			w.shell.post(nil, handoff.Leave{Now: true})
		case <-ctx.Done():
			return fmt.Errorf("worker: draining %s: %w with %d executions running; its session expires in at most %v", w.name, context.Cause(ctx), w.running(), w.settings.TTL)
		}
	}
}

// running counts the keys that are held.
func (w *Worker) running() int {
	n := 0
	for i := range w.parts {
		n += w.parts[i].table.Len()
	}
	return n
}

// Close stops the worker at once: it admits nothing more, cancels the contexts
// of what runs, and stops renewing its session, which expires by itself unless
// Drain has released it. Close waits for the worker's own goroutines, not for
// executions. It may be called again.
func (w *Worker) Close() error {
	w.draining.Store(true)
	w.shell.close()
	w.lease.Store(new(handoff.Lease))
	for i := range w.parts {
		p := &w.parts[i]
		p.open.Store(false)
		p.table.Close()
		p.cancelRunning()
		p.announce()
	}
	w.locks.close()
	w.slow.close()
	w.flushLog()
	return nil
}

// Serving returns how many partitions the worker serves.
func (w *Worker) Serving() int {
	n := 0
	for i := range w.parts {
		if w.parts[i].open.Load() {
			n++
		}
	}
	return n
}

// Queued returns how many callers wait for key at this worker.
func (w *Worker) Queued(key string) int {
	return w.parts[w.settings.Ring.Partition(key)].table.Queued(key)
}
