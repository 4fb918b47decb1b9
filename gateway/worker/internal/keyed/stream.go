package keyed

import (
	"context"
	"errors"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/internal/policy"
)

// errClientLeft is the cause of a stream's context when its client has left.
var errClientLeft = errors.New("worker: the client has left")

// LetGo frees the key of an execution whose answer begins and is a stream, if its route's mode
// allows that. Only the app's answer can cause this. It returns the stream, or nil if the key stays held.
//
// A stream is an answer that continues while its request holds no key: an event stream or a change of
// protocols. The execution's context continues with it, until EndStream is called, the client leaves, or the partition
// is given away, so that the client connects again and finds the next owner.
func (x Execution) LetGo() *Context {
	r := x.run
	if r.policy != nil && r.policy.Mode == policy.Serialize {
		return nil
	}
	_ = x.Context() // there is one from here on
	c, ok := r.endLife(x.life)
	if !ok {
		return nil
	}
	c.make()
	r.reset(x.Key)
	c.streams.Store(true)
	if !c.part.Open.Load() { // which is said before EndStreams looks
		c.Cancel(appstate.ErrStreamEnds)
	}
	if c.client != nil {
		c.unhook = context.AfterFunc(c.client, func() { c.Cancel(errClientLeft) })
	}
	if !c.endExecution() {
		c.part.freeKey(c.key, c.token, c.outer)
	}
	return c
}

// EndStream ends a stream and its context. c may be nil.
func (c *Context) EndStream() {
	if c == nil {
		return
	}
	if c.unhook != nil {
		c.unhook()
	}
	c.part.mu.Lock()
	delete(c.part.live, c)
	if c.gone != nil {
		c.gone.Stop()
	}
	c.part.mu.Unlock()
	c.Cancel(nil)
}
