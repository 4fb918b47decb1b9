package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	wireBatch = 128                    // calls in one pipeline
	wireLanes = 16                     // pipelines under way at once, one connection each
	wirePause = time.Millisecond       // between the starts of lanes beyond wireEager
	wireEager = 1                      // lanes that start at once
	wireGrace = 100 * time.Millisecond // beyond the timeout, for a client that does not keep it

	wirePlaces = 8                      // calls in place at once; more share pipelines
	wireNear   = 10 * time.Millisecond  // a server that answered faster last time is called in place
	wirePlace  = 100 * time.Millisecond // timeout of a call in place
)

// errLockTimeout: a server did not answer a call in time.
var errLockTimeout = errors.New("no answer in time")

// lockWire carries script calls to one server, or to a cluster. Calls made while others are under
// way share a pipeline, so many callers cost few system calls. A caller whose context ends stops
// waiting, but its call continues. No call is sent twice: its caller must repeat it.
//
// A single call to a server near by runs in its caller's goroutine. That saves waking another one,
// but the caller cannot leave before the call's short timeout. mu guards the queue and the number
// of calls.
type lockWire struct {
	client  redis.UniversalClient
	single  bool // one server: pipelines are worth it
	inPlace bool // and calls in place
	timeout time.Duration
	trip    atomic.Int64 // how long the latest pipeline took, in ns; 0 before the first

	mu     sync.Mutex
	queue  []*wireCall
	lanes  int
	placed int         // calls in place
	latest time.Time   // start of the latest lane
	timer  *time.Timer // starts one more lane for the queue; nil if not set
	idle   *sync.Cond  // lanes and placed are 0
}

// wireCall is one run of a script. It is queued, sent and over; done is closed at the end.
type wireCall struct {
	script *lockScript
	args   []any // of scriptArgs

	sent  bool // guarded by the wire's mu
	over  bool // guarded by the wire's mu; reply and err are set
	done  chan struct{}
	reply any
	err   error
}

// onceCmd is a command that go-redis does not repeat by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func newLockWire(client redis.UniversalClient, timeout time.Duration, inPlace bool) *lockWire {
	w := &lockWire{client: client, timeout: timeout}
	w.idle = sync.NewCond(&w.mu)
	if c, ok := client.(*redis.Client); ok {
		w.single = true
		// A read of a client that ignores contexts takes three seconds and more.
		w.inPlace = inPlace && c.Options().ContextTimeoutEnabled
	}
	return w
}

// call runs a script. It returns an error soon after ctx ends, and otherwise within the wire's
// timeout. If the error is not the server's own refusal, sent says whether the call may still be
// carried out.
func (w *lockWire) call(ctx context.Context, s *lockScript, args []any) (reply any, sent bool, err error) {
	if w.enter() {
		reply, err = w.callInPlace(ctx, &wireCall{script: s, args: args})
		w.leavePlace()
		return reply, err != nil && !refusal(err), err
	}
	c := &wireCall{script: s, args: args, done: make(chan struct{})}
	w.submit(c)
	select {
	case <-c.done:
		return c.reply, c.err != nil && !refusal(c.err), c.err
	case <-ctx.Done():
		return nil, w.forget(c), context.Cause(ctx)
	}
}

func refusal(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// enter reports whether a call may run in place. If so, the caller must call leave after it.
func (w *lockWire) enter() bool {
	if trip := w.trip.Load(); !w.inPlace || trip == 0 || trip > int64(wireNear) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.placed >= wirePlaces || len(w.queue) > 0 {
		return false
	}
	w.placed++
	return true
}

func (w *lockWire) leavePlace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed--
	w.endedLocked()
}

// endedLocked wakes the goroutines that wait for the wire to be idle, if it is.
func (w *lockWire) endedLocked() {
	if w.lanes == 0 && w.placed == 0 {
		w.idle.Broadcast()
	}
}

func (w *lockWire) callInPlace(caller context.Context, c *wireCall) (any, error) {
	ctx := until(caller, time.Now().Add(min(w.timeout, wirePlace)))
	cmd := c.command(ctx, "evalsha", c.script.sha)
	err := w.client.Process(ctx, onceCmd{cmd})
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		cmd = c.command(ctx, "eval", c.script.source)
		err = w.client.Process(ctx, onceCmd{cmd})
	}
	if err != nil && !refusal(err) {
		w.trip.Store(int64(w.timeout)) // until a call beside its caller was fast
	}
	if err != nil && caller.Err() != nil {
		err = context.Cause(caller)
	}
	return cmd.Val(), err
}

// deadlineContext has a deadline but no timer: it is for go-redis, which gives
// the deadline to the connection.
type deadlineContext struct {
	context.Context
	at time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.at, true }

func until(ctx context.Context, at time.Time) context.Context {
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(at) {
		return ctx
	}
	return deadlineContext{ctx, at}
}

// scriptArgs returns the arguments of EVALSHA. The wire sets the first two.
func scriptArgs(keys []string, args ...any) []any {
	all := append(make([]any, 0, 3+len(keys)+len(args)), nil, nil, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

// command is the call as EVALSHA or EVAL.
func (c *wireCall) command(ctx context.Context, verb, script string) *redis.Cmd {
	c.args[0], c.args[1] = verb, script
	return redis.NewCmd(ctx, c.args...)
}

func (w *lockWire) submit(c *wireCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	if !w.single {
		w.startLocked()
		return
	}
	now := time.Now()
	switch {
	case w.lanes < wireEager, w.lanes < wireLanes && now.Sub(w.latest) >= wirePause:
		w.latest = now
		w.startLocked()
	case w.lanes < wireLanes && w.timer == nil:
		w.timer = time.AfterFunc(wirePause, w.late)
	}
}

// startLocked adds a lane.
func (w *lockWire) startLocked() {
	w.lanes++
	go w.lane()
}

// late starts a lane for calls that found the others under way.
func (w *lockWire) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = nil
	if len(w.queue) > 0 && w.lanes < wireLanes {
		w.latest = time.Now()
		w.startLocked()
	}
}

// forget drops a call without waiters, and reports whether it had been sent.
func (w *lockWire) forget(c *wireCall) (sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.queue, c); i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	return c.sent
}

// lane carries what is queued, batch after batch, and ends when nothing is.
func (w *lockWire) lane() {
	runtime.Gosched() // to those who are about to call, so that they share the batch
	w.mu.Lock()
	for len(w.queue) > 0 {
		n := 1
		if w.single {
			n = min(len(w.queue), wireBatch)
		}
		batch := slices.Clone(w.queue[:n])
		w.queue = slices.Delete(w.queue, 0, n)
		for _, c := range batch {
			c.sent = true
		}
		w.mu.Unlock()
		w.carry(batch)
		runtime.Gosched()
		w.mu.Lock()
	}
	w.lanes--
	w.endedLocked()
	w.mu.Unlock()
}

// carry runs a batch and answers its calls, in any case soon after the timeout.
func (w *lockWire) carry(batch []*wireCall) {
	watch := time.AfterFunc(w.timeout+wireGrace, func() {
		for _, c := range batch {
			w.answer(c, nil, errLockTimeout)
		}
	})
	defer watch.Stop()
	began := time.Now()
	ctx := until(context.Background(), began.Add(w.timeout))
	cmds := w.exec(ctx, batch, "evalsha", func(s *lockScript) string { return s.sha })
	w.trip.Store(int64(time.Since(began)))
	var unknown []*wireCall
	for i, c := range batch {
		if err := cmds[i].Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			unknown = append(unknown, c)
			continue
		}
		w.answer(c, cmds[i].Val(), cmds[i].Err())
	}
	if len(unknown) == 0 {
		return
	}
	cmds = w.exec(ctx, unknown, "eval", func(s *lockScript) string { return s.source })
	for i, c := range unknown {
		w.answer(c, cmds[i].Val(), cmds[i].Err())
	}
}

// exec sends a batch as one pipeline and returns its commands, each with a
// value or an error.
func (w *lockWire) exec(ctx context.Context, batch []*wireCall, verb string, text func(*lockScript) string) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		cmds[i] = c.command(ctx, verb, text(c.script))
	}
	if len(batch) == 1 {
		_ = w.client.Process(ctx, onceCmd{cmds[0]}) // the command has the error
		return cmds
	}
	p := w.client.Pipeline()
	for _, cmd := range cmds {
		_ = p.Process(ctx, onceCmd{cmd})
	}
	if _, err := p.Exec(ctx); err != nil {
		for _, cmd := range cmds {
			if cmd.Err() == nil && cmd.Val() == nil {
				cmd.SetErr(fmt.Errorf("pipeline: %w", err))
			}
		}
	}
	return cmds
}

func (w *lockWire) answer(c *wireCall, reply any, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.reply, c.err = true, reply, err
	close(c.done)
}

// close waits until every lane has ended: a bounded time, as each call's is.
func (w *lockWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.lanes > 0 || w.placed > 0 {
		w.idle.Wait()
	}
}
