package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	wireBatch = 128                    // calls in one pipeline
	wireLanes = 16                     // pipelines under way at once, one connection each
	wirePause = time.Millisecond       // between the starts of two lanes, unless the server takes longer to answer
	wireGrace = 100 * time.Millisecond // beyond the timeout, for a client that does not keep it
)

// errLockTimeout: a server did not answer a call in time.
var errLockTimeout = errors.New("no answer in time")

// lockWire carries script calls to one server, or to a cluster. Calls made while others are under
// way share a pipeline, so many callers cost few system calls. A caller whose context ends stops
// waiting, but its call continues. No call is sent twice: its caller must repeat it. mu guards the
// queue and the number of lanes.
type lockWire struct {
	client  redis.UniversalClient
	batch   int // calls in one pipeline: pipelines are worth it for one server
	timeout time.Duration

	mu     sync.Mutex
	queue  []*wireCall
	lanes  int
	latest time.Time     // start of the latest lane
	trip   time.Duration // how long the latest pipeline took
	idle   *sync.Cond    // lanes is 0
}

// wireCall is one run of a script. It is queued and sent; done is closed at the end.
type wireCall struct {
	script *lockScript
	args   []any // of scriptArgs

	sent bool // guarded by the wire's mu
	done chan struct{}
	cmd  *redis.Cmd // with the reply or the error
}

// onceCmd is a command that go-redis does not repeat by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func newLockWire(client redis.UniversalClient, timeout time.Duration) *lockWire {
	w := &lockWire{client: client, batch: 1, timeout: timeout}
	w.idle = sync.NewCond(&w.mu)
	if _, ok := client.(*redis.Client); ok {
		w.batch = wireBatch
	}
	return w
}

// call runs a script, and returns its reply or error. The latter comes soon after ctx ends, and
// otherwise within the wire's timeout. If the error is not the server's own refusal, sent says
// whether the call may still be carried out.
func (w *lockWire) call(ctx context.Context, s *lockScript, args []any) (reply *redis.Cmd, sent bool) {
	c := &wireCall{script: s, args: args, done: make(chan struct{})}
	w.submit(c)
	late := time.NewTimer(w.timeout + wireGrace)
	defer late.Stop()
	select {
	case <-c.done:
		return c.cmd, unanswered(c.cmd.Err())
	case <-ctx.Done():
		return redis.NewCmdResult(nil, context.Cause(ctx)), w.forget(c)
	case <-late.C:
		return redis.NewCmdResult(nil, errLockTimeout), w.forget(c)
	}
}

// unanswered reports whether a call has failed without an answer of the server.
func unanswered(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return err != nil && !refused
}

// scriptArgs returns the arguments of EVALSHA. The wire sets the first two.
func scriptArgs(keys []string, args ...any) []any {
	all := append(make([]any, 0, 3+len(keys)+len(args)), nil, nil, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

// command makes the call as EVALSHA or EVAL.
func (c *wireCall) command(ctx context.Context, verb, script string) redis.Cmder {
	c.args[0], c.args[1] = verb, script
	c.cmd = redis.NewCmd(ctx, c.args...)
	return onceCmd{c.cmd}
}

// submit queues a call, and starts one more lane for the queue if it is time.
func (w *lockWire) submit(c *wireCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	now := time.Now()
	due := w.trip > wirePause || now.Sub(w.latest) >= wirePause
	if w.batch == 1 || w.lanes == 0 || w.lanes < wireLanes && due {
		w.latest = now
		w.lanes++
		go w.lane()
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
		n := min(len(w.queue), w.batch)
		batch := slices.Clone(w.queue[:n])
		w.queue = slices.Delete(w.queue, 0, n)
		for _, c := range batch {
			c.sent = true
		}
		w.mu.Unlock()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
		w.exec(ctx, batch)
		cancel()
		trip := time.Since(began)
		for _, c := range batch {
			close(c.done)
		}
		runtime.Gosched()
		w.mu.Lock()
		w.trip = trip
	}
	if w.lanes--; w.lanes == 0 {
		w.idle.Broadcast()
	}
	w.mu.Unlock()
}

// exec sends a batch as one pipeline, after which each call has its reply or error. A script that the
// server does not know is sent to it.
func (w *lockWire) exec(ctx context.Context, batch []*wireCall) {
	var err error
	if len(batch) == 1 {
		_ = w.client.Process(ctx, batch[0].command(ctx, "evalsha", batch[0].script.sha)) // the command has the error
	} else {
		p := w.client.Pipeline()
		for _, c := range batch {
			_ = p.Process(ctx, c.command(ctx, "evalsha", c.script.sha))
		}
		_, err = p.Exec(ctx)
	}
	for _, c := range batch {
		switch {
		case redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT"):
			_ = w.client.Process(ctx, c.command(ctx, "eval", c.script.source))
		case err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil:
			c.cmd.SetErr(fmt.Errorf("pipeline: %w", err))
		}
	}
}

// close waits until every lane has ended: a bounded time, as each call's is.
func (w *lockWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.lanes > 0 {
		w.idle.Wait()
	}
}
