package lock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lockSources embed.FS

// lockScript is a script as EVALSHA and EVAL want it.
type lockScript struct {
	source string
	sha    string
}

// scripts are the scripts of the lock. Those that grant one begin with a library.
var scripts = struct {
	take, acquire, read, fifo, give, release, renew, downgrade, adopt, state lockScript
}{
	take: load("take"), give: load("give"), release: load("release"),
	acquire: load("lib", "acquire"), read: load("lib", "read"), fifo: load("lib", "fifo"), renew: load("lib", "renew"),
	downgrade: load("lib", "downgrade"), adopt: load("lib", "adopt"), state: load("lib", "state"),
}

func load(files ...string) (s lockScript) {
	for _, file := range files {
		text, err := lockSources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		s.source += string(text)
	}
	s.sha = redis.NewScript(s.source).Hash()
	return s
}

const (
	wireBatch = 128                    // calls in one pipeline
	wireLanes = 16                     // pipelines under way at once, one connection each
	wireGrace = 100 * time.Millisecond // beyond the timeout, for a client that does not keep it
)

// errLockTimeout: a server did not answer a call in time.
var errLockTimeout = errors.New("no answer in time")

// wireCall is one run of a script. done is closed at its end.
type wireCall struct {
	ctx    context.Context // ends when its caller does not wait any more
	script *lockScript
	args   []any // of EVALSHA, the first two of which command sets
	done   chan struct{}
	cmd    *redis.Cmd // with the reply or the error
}

// onceCmd is a command that go-redis does not repeat by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// run runs a script, and returns its reply or error. The latter comes soon after ctx ends, and otherwise within the
// timeout; a call that was sent continues. No call is sent twice: its caller must repeat it. takes is the claim whose locks
// the script may take, nil for none. If a call has no answer, it is noted there, since it may still be carried out.
func (n *lockNode) run(ctx context.Context, takes *claim, s *lockScript, keys []string, args ...any) (reply *redis.Cmd) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.l.cfg.Timeout+wireGrace, errLockTimeout)
	defer cancel()
	c := &wireCall{ctx: ctx, script: s, args: append(make([]any, 0, 3+len(keys)+len(args)), nil, nil, len(keys)), done: make(chan struct{})}
	for _, key := range keys {
		c.args = append(c.args, key)
	}
	c.args = append(c.args, args...)
	n.submit(c)
	answered := false
	select {
	case <-c.done:
		reply, answered = c.cmd, !unanswered(c.cmd.Err())
	case <-ctx.Done(): // the cause may be an answer to something else
		reply = redis.NewCmdResult(nil, context.Cause(ctx))
	}
	if takes != nil && !answered {
		takes.unsettled.Store(true)
	}
	return reply
}

// unanswered reports whether a call has failed without an answer of the server.
func unanswered(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return err != nil && !refused
}

// submit queues a call. Calls that find all lanes under way share a pipeline, so many callers cost few system calls. In a
// cluster each call has a lane of its own, since a pipeline is worth it for one server.
func (n *lockNode) submit(c *wireCall) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, c)
	if n.batch == 1 || n.lanes < wireLanes {
		n.lanes++
		n.l.spawn(n.lane)
	}
}

// lane carries what is queued, batch after batch, and ends when nothing is.
func (n *lockNode) lane() {
	runtime.Gosched() // to those who are about to call, so that they share the batch
	for batch := n.next(); len(batch) > 0; batch = n.next() {
		ctx, cancel := context.WithTimeout(context.Background(), n.l.cfg.Timeout)
		n.exec(ctx, batch)
		cancel()
		for _, c := range batch {
			close(c.done)
		}
		runtime.Gosched()
	}
}

// next takes the next batch out of the queue. Without one the lane has ended. Calls whose callers have left are dropped.
func (n *lockNode) next() []*wireCall {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = slices.DeleteFunc(n.queue, func(c *wireCall) bool { return c.ctx.Err() != nil })
	size := min(len(n.queue), n.batch)
	if size == 0 {
		n.lanes--
	}
	batch := slices.Clone(n.queue[:size])
	n.queue = slices.Delete(n.queue, 0, size)
	return batch
}

// command makes the call as EVALSHA or EVAL.
func (c *wireCall) command(ctx context.Context, verb, script string) redis.Cmder {
	c.args[0], c.args[1] = verb, script
	c.cmd = redis.NewCmd(ctx, c.args...)
	return onceCmd{c.cmd}
}

// exec sends a batch as one pipeline, after which each call has its reply or error. A script that the
// server does not know is sent to it.
func (n *lockNode) exec(ctx context.Context, batch []*wireCall) {
	var err error
	if len(batch) == 1 {
		_ = n.client.Process(ctx, batch[0].command(ctx, "evalsha", batch[0].script.sha)) // the command has the error
	} else {
		p := n.client.Pipeline()
		for _, c := range batch {
			_ = p.Process(ctx, c.command(ctx, "evalsha", c.script.sha))
		}
		_, err = p.Exec(ctx)
	}
	for _, c := range batch {
		switch {
		case redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT"):
			_ = n.client.Process(ctx, c.command(ctx, "eval", c.script.source))
		case err != nil && c.cmd.Err() == nil && c.cmd.Val() == nil:
			c.cmd.SetErr(fmt.Errorf("pipeline: %w", err))
		}
	}
}
