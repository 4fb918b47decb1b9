package keyed

import (
	"context"
	"errors"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
	"github.com/keyway-go/keyway/internal/policy"
)

// errClientLeft is the cause of a stream's context when its client has left.
var errClientLeft = errors.New("worker: the client has left")

// Stream is an answer that continues while its request holds no key: an event stream or a change of
// protocols. It ends when its partition is given away, so that its client connects again and finds
// the next owner.
type Stream struct {
	run    *Context
	unhook func() bool // ends the watch of the client; nil if there is none
}

// End ends the stream and its context. It may be called of no stream.
func (s *Stream) End() {
	if s == nil {
		return
	}
	if s.unhook != nil {
		s.unhook()
	}
	c, p := s.run, s.run.part
	p.mu.Lock()
	delete(p.live, c)
	if c.gone != nil {
		c.gone.Stop()
	}
	p.mu.Unlock()
	c.Cancel(nil)
}

// LetGo frees the key of an execution whose answer begins and is a stream, if its route's mode
// allows that. Only the app's answer can cause this. The execution's context continues until the
// stream ends, the client leaves or the partition is given away. LetGo returns nil if the key stays
// held.
func (x Execution) LetGo() *Stream {
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
	p, token, outer := r.part, r.token, r.outer
	r.reset(x.Key)
	s := c.stream()
	if !c.endExecution() {
		p.freeKey(x.Key, token, outer)
	}
	return s
}

// stream makes c the context of a stream, which is bound neither by a timeout nor by
// its key's lease.
func (c *Context) stream() *Stream {
	s := &Stream{run: c}
	c.streams.Store(true)
	if !c.part.Open.Load() { // which is said before EndStreams looks
		c.Cancel(appstate.ErrStreamEnds)
	}
	if c.client != nil {
		s.unhook = context.AfterFunc(c.client, func() { c.Cancel(errClientLeft) })
	}
	return s
}
