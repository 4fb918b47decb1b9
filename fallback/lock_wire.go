package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	wireBatch = 128                    // calls in one pipeline
	wireLanes = 16                     // pipelines under way at once, one connection each
	wirePause = time.Millisecond       // between the starts of lanes beyond wireEager
	wireEager = 2                      // lanes that start at once
	wireGrace = 100 * time.Millisecond // beyond the timeout, for a client that does not keep it
)

// errLockTimeout: a server did not answer a call in time.
var errLockTimeout = errors.New("no answer in time")

// lockWire carries script calls to one server, or to a cluster. Calls made
// while others are under way share a pipeline, so that many callers cost few
// system calls, and a caller whose context ends stops waiting at once while
// its call goes on. No call is sent twice: repeating is for who made it.
type lockWire struct {
	client  redis.UniversalClient
	single  bool // one server: pipelines are worth it
	timeout time.Duration

	mu     sync.Mutex
	queue  []*wireCall
	lanes  int
	latest time.Time   // start of the latest lane
	timer  *time.Timer // starts one more lane for the queue; nil if not set
	idle   *sync.Cond  // lanes is 0
}

// wireCall is one run of a script.
type wireCall struct {
	script *lockScript
	keys   []string
	args   []any

	sent  bool // guarded by the wire's mu
	over  bool // guarded by the wire's mu; reply and err are set
	done  chan struct{}
	reply any
	err   error
}

// onceCmd is a command that go-redis does not repeat by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func newLockWire(client redis.UniversalClient, timeout time.Duration) *lockWire {
	w := &lockWire{client: client, timeout: timeout}
	w.idle = sync.NewCond(&w.mu)
	if c, ok := client.(*redis.Client); ok {
		// Without a bound of its own, a read of a client that ignores contexts
		// takes go-redis' three seconds and more.
		w.client, w.single = c.WithTimeout(timeout), true
	}
	return w
}

// call runs a script. It returns an error at once when ctx ends, and within
// the wire's timeout otherwise. With an error from anything but the server's
// own refusal, sent says whether the call may yet be carried out.
func (w *lockWire) call(ctx context.Context, s *lockScript, keys []string, args ...any) (reply any, sent bool, err error) {
	c := &wireCall{script: s, keys: keys, args: args, done: make(chan struct{})}
	w.submit(c)
	select {
	case <-c.done:
		var refused redis.Error
		return c.reply, c.err != nil && !errors.As(c.err, &refused), c.err
	case <-ctx.Done():
		return nil, w.forget(c), context.Cause(ctx)
	}
}

func (w *lockWire) submit(c *wireCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	if !w.single {
		w.start()
		return
	}
	now := time.Now()
	switch {
	case w.lanes < wireEager, w.lanes < wireLanes && now.Sub(w.latest) >= wirePause:
		w.latest = now
		w.start()
	case w.lanes < wireLanes && w.timer == nil:
		w.timer = time.AfterFunc(wirePause, w.late)
	}
}

// start adds a lane. The wire's mu is held.
func (w *lockWire) start() {
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
		w.start()
	}
}

// forget drops a call nobody waits for, and says whether it had been sent.
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
		w.mu.Lock()
	}
	w.lanes--
	if w.lanes == 0 {
		w.idle.Broadcast()
	}
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
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()

	cmds := w.exec(ctx, batch, "evalsha", func(s *lockScript) string { return s.sha })
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
		args := make([]any, 0, 3+len(c.keys)+len(c.args))
		args = append(args, verb, text(c.script), len(c.keys))
		for _, key := range c.keys {
			args = append(args, key)
		}
		cmds[i] = redis.NewCmd(ctx, append(args, c.args...)...)
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
	for w.lanes > 0 {
		w.idle.Wait()
	}
}
