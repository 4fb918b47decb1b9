// Package worker is for programs that bring their own membership and store; others call
// keyway.Start. It runs requests with their keys held. A [Worker] takes part in the ownership
// protocol: it claims the partitions that the ring gives it, and runs one execution of a key at a
// time.
//
// A [Worker] is joining, active, drained or leaving, as other members see it. It is drained while
// an operator wants it off the ring, and joining again while the app behind it does not answer.
// Leaving is final. One goroutine changes this state and the set of open partitions:
// internal/ownership says how.
//
// An execution waits for its key, runs, and ends: internal/keyed says how. It holds the key until
// its handler has returned or, behind a sidecar, until the app has answered or is given up.
//
// A lock is the counterpart of an execution for a caller in another process: held, or waited for in
// the same queue. It moves with its partition, and ends when it is unlocked or its lease expires.
//
// The app behind a sidecar is up or down. A goroutine probes it. An app that is down takes the
// worker off the ring, so that other workers serve its keys.
//
// A batch is a group of calls for one key that one execution answers together; a [Batcher] collects
// the waiting calls. Equal calls of [Share] share one's result: at its end, while the key is still held, since a later
// caller may see newer data.
//
// Files, from a request inwards:
//
//	server.go      connections, and who their senders are
//	inquiry.go     calls between members; internal/locks answers those for locks
//	forward.go     requests for an app in another process
//	batch_http.go  requests that a batcher takes; batch.go is the batcher
//	share.go       results that equal calls share
//	do.go          calls of this program and of its client
//	handler.go     requests, until their answers or streams end; upload.go has their bodies
//	collapse.go    requests that get the answer to an equal one; internal/answers keeps it
//	status.go      what operators see, with metrics.go
//	worker.go      the worker, and whether its apps answer: internal/keyed has its keys, internal/ownership decides which it owns
//	claims.go      which keys apps said they worked on
//	spans.go       the times of requests
//	refusal.go     why a request is refused; policy.go has the policies of their routes
//	config.go      the worker's settings
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

	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/gateway/worker/internal/answers"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/gateway/worker/internal/locks"
	"github.com/keyway-go/keyway/gateway/worker/internal/ownership"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// Worker owns partitions and runs one execution at a time for each of their keys. Start one with
// [Start]. The shell's goroutine changes which partitions are open, keys and locks what runs in
// them; each has locks of its own. Close ends a Worker for good.
type Worker struct {
	cfg       Config
	name      string       // in Config.Members
	log       *slog.Logger // for what clients can bring about
	fields    fields.Rules
	answers   *answers.Room
	bodies    *spool.Pool // of requests over plain HTTP
	settings  ring.Settings
	keys      *keyed.Keys
	collapses atomic.Uint64 // see alike.came
	batches   atomic.Bool   // there is a handler of requests that are submitted to a batcher
	apps      apps
	shell     *ownership.Shell
	locks     *locks.Locks
	policies  policies
	claims    claims
	counts    counts
	spans     *spans.Maker // nil for none
}

// Start starts a worker. It registers a session in the store, begins to own the partitions that the
// ring gives it, and runs until [Worker.Close], which the caller must call. ctx bounds only Start
// itself, which announces the first incarnation to the members after Config.OnIncarnation. Start
// does not wait for the store, see [Worker.Await].
func Start(ctx context.Context, cfg Config) (*Worker, error) {
	var err error
	if cfg.Limits, err = cfg.Limits.complete(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	switch {
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
	bodies, err := spool.NewPool(spool.Config{Files: cfg.BodyFiles, PerSpool: cfg.MaxBody, Dir: cfg.BodyDir})
	if err != nil {
		return nil, fmt.Errorf("worker: Limits.BodyDir (--body-dir): %w", err)
	}
	conns.WarnOfFiles(cfg.Logger, cfg.MaxConnections)
	w := &Worker{cfg: cfg, name: self.Name, settings: settings, fields: fields, spans: spans.New(cfg.TracerProvider, cfg.TraceKeys)}
	w.answers, w.bodies = answers.New(cfg.AnswerMemory, cfg.AnswerFiles, cfg.AnswerMax), bodies
	w.counts.batches = newBatchItems()
	w.log = requestlog.New(cfg.Logger)
	w.keys = keyed.New(keyed.Config{
		Name: self.Name, Settings: settings, View: cfg.Members.View, Log: w.log, QueuePerKey: cfg.QueuePerKey, Queue: cfg.Queue, MaxAwaiting: cfg.MaxAwaiting,
		AwaitTimeout: cfg.AwaitTimeout, MaxWait: cfg.MaxWait, SlowKey: cfg.SlowKey, Timeout: cfg.Timeout, AbandonedTimeout: cfg.AbandonedTimeout,
	})
	w.locks = locks.New(locks.Config{
		Name: self.Name, Settings: settings, Keys: w.keys, Logger: cfg.Logger, Log: w.log, MaxHolds: cfg.MaxHolds, MaxLease: cfg.MaxLease, MaxWait: cfg.MaxWait,
		OnHold: cfg.OnHold, NotesLives: cfg.OnIncarnation != nil, Trace: w.traceOfLock, Refused: w.refused,
	})
	w.shell, err = ownership.Start(ctx, ownership.Config{
		Name: self.Name, Settings: settings, Members: cfg.Members, Store: cfg.Store, Keys: w.keys, Locks: w.locks, Health: w.appTrouble, Logger: cfg.Logger, Log: w.log,
		NewCluster: cfg.NewCluster, ServeWithoutStore: cfg.ServeWithoutStore, Previous: cfg.Previous, OnIncarnation: cfg.OnIncarnation, OnPeers: cfg.OnPeers, OnPlacements: cfg.OnPlacements,
	})
	if err != nil {
		return nil, err
	}
	w.shell.Go(w.keys.Sweep)
	return w, nil
}

// Await waits until the worker serves every partition that the ring gives it, or knows that there
// are none, for the first time. That takes a session TTL after a crash of the partitions' former
// owner. If an app does not answer, Await does not wait for it: the error is an [ErrAppDown], once
// the worker has a session.
func (w *Worker) Await(ctx context.Context) error { return w.shell.Await(ctx, w.askApps) }

// Ready returns nil while the worker admits requests, and otherwise the reason. A worker is not
// ready until its present incarnation has served everything that the ring gave it; partitions that
// come later do not change that.
func (w *Worker) Ready() error { return w.shell.Ready() }

// Config returns the worker's settings, with their defaults.
func (w *Worker) Config() Config { return w.cfg }

// Incarnation returns the id of the worker's present session.
func (w *Worker) Incarnation() string { return w.keys.Incarnation() }

// LeaveRing takes the worker off the ring until [Worker.JoinRing], and lets others take over its
// partitions. It returns nil when they have them and none of their executions runs here any more.
// The worker keeps its session, answers, and sends requests elsewhere. If ctx ends first, the error
// says what is still here, and the worker stays off the ring. If there is no other worker, it stays
// on the ring and LeaveRing returns an error. A worker that is being drained for good
// ([Worker.Drain]) continues with that.
func (w *Worker) LeaveRing(ctx context.Context) error { return w.shell.LeaveRing(ctx) }

// JoinRing undoes [Worker.LeaveRing]. It does nothing if the worker was not told to leave, and
// fails if it leaves for good.
func (w *Worker) JoinRing() error { return w.shell.JoinRing() }

// Drain takes the worker off the ring, hands over its partitions, waits for running executions, and
// releases the session, so that no other worker must wait for it to expire. Half-way to ctx's
// deadline it stops waiting for workers that take the partitions and only waits for the executions.
//
// If ctx ends first, Drain returns an error that says what still runs, and the
// session is not released: it expires by itself. Call Close in either case.
func (w *Worker) Drain(ctx context.Context) error { return w.shell.Drain(ctx) }

// Place makes a partition belong to the worker of a name, in place of the one by the ring. It stays so, whatever the
// load, until Place is called with the name "", and while that worker is on the ring. If no worker of
// that name is, the error wraps [status.ErrNoWorker].
func (w *Worker) Place(ctx context.Context, partition int, name string) error {
	return w.shell.Place(ctx, partition, name)
}

// Close stops the worker at once. It admits nothing more, cancels the contexts of running
// executions, and stops renewing its session, which expires unless Drain has released it. Close
// waits for the worker's own goroutines, not for executions. It may be called again.
func (w *Worker) Close() error {
	w.shell.Close()
	w.keys.Close()
	w.locks.Stop()
	return nil
}

// Serving returns how many partitions the worker serves.
func (w *Worker) Serving() int { return w.keys.Serving() }

// Queued returns how many callers wait for key at this worker.
func (w *Worker) Queued(key string) int { return w.keys.Queued(key) }

// HotKeys returns the n keys that this worker was asked for most in the last 10 to 20 seconds, at
// most 512. It includes keys that callers have waited for since before. A key that is asked for
// more than once a second on average is missing only if hundreds of others are asked for as often.
// Executions that need not wait are sampled, 1 in 127, and a key needs two samples.
func (w *Worker) HotKeys(n int) []status.HotKey { return w.keys.HotKeys(n) }

// ErrAppDown means that the app behind a sidecar does not answer, so
// that the worker takes no place on the ring.
var ErrAppDown = errors.New("the app does not answer")

// apps are the apps in other processes that a worker is for.
type apps struct {
	mu   sync.Mutex
	list []*app // guarded by mu
}

// app is an app in another process.
type app struct {
	state atomic.Pointer[appstate.State]
	asked chan struct{} // closed when watch has told of it for the first time
}

// WatchApp keeps the worker off the ring while an app in another process does not answer. It begins
// with the given state, and runs watch until the worker is closed. watch calls tell after each
// probe of the app.
func (w *Worker) WatchApp(state appstate.State, watch func(ctx context.Context, tell func(appstate.State))) {
	a := &app{asked: make(chan struct{})}
	a.state.Store(&state)
	w.apps.mu.Lock()
	w.apps.list = append(w.apps.list, a)
	w.apps.mu.Unlock()
	w.shell.Poke()
	asked := sync.OnceFunc(func() { close(a.asked) })
	w.shell.Go(func(ctx context.Context) {
		watch(ctx, func(s appstate.State) {
			if old := a.state.Swap(&s); (old.Down == nil) != (s.Down == nil) || (old.Delay == nil) != (s.Delay == nil) {
				w.shell.Poke()
			}
			asked()
		})
	})
}

// appTrouble returns why an app keeps the worker off the ring, an [ErrAppDown]; nil for no reason.
// If no other worker serves, an app that has crashed before need only answer.
func (w *Worker) appTrouble(alone bool) error {
	w.apps.mu.Lock()
	defer w.apps.mu.Unlock()
	if len(w.apps.list) == 0 && w.cfg.AwaitApp {
		return fmt.Errorf("%w: there is none yet", ErrAppDown)
	}
	for _, a := range w.apps.list {
		s := a.state.Load()
		if s.Down != nil {
			return s.Down
		}
		if s.Delay != nil && !alone {
			return s.Delay
		}
	}
	return nil
}

// askApps waits until each app was asked for the first time, and returns appTrouble.
func (w *Worker) askApps(ctx context.Context) error {
	w.apps.mu.Lock()
	list := slices.Clone(w.apps.list)
	w.apps.mu.Unlock()
	for _, a := range list {
		select {
		case <-a.asked:
		case <-w.shell.Closed():
		case <-ctx.Done():
		}
	}
	return w.appTrouble(w.shell.Settled())
}

func (w *Worker) appUp() (up, watched bool) {
	w.apps.mu.Lock()
	watched = len(w.apps.list) > 0
	w.apps.mu.Unlock()
	return w.appTrouble(true) == nil, watched
}
