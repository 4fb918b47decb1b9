package worker

import (
	"context"
	"errors"

	"github.com/keyway-go/keyway/gateway/internal/policy"
)

// ErrStreamEnds is the cause with which the context of a stream is cancelled whose
// partition is given away.
var ErrStreamEnds = errors.New("worker: the key goes to another worker, or this one leaves: the client connects again to where it is then")

// errClientLeft is the cause with which the context of a stream is cancelled whose
// client has left.
var errClientLeft = errors.New("worker: the client has left")

// stream is an answer that goes on while its request holds no key: an event stream
// or a change of protocols. It ends when its partition is given away, so that its
// client connects again and finds the next owner.
type stream struct {
	run    *runContext
	unhook func() bool // ends the watch of the client; nil if there is none
}

// letGo frees the key of an execution whose answer begins and is a stream, if its
// route's mode lets such ones go on without: only what the app answers brings that
// about. The execution's context goes on until the stream ends, the client leaves or
// the partition is given away. letGo returns nil if the key stays held.
func (x execution) letGo() *stream {
	r := x.run
	if r.policy != nil && r.policy.Mode == policy.Serialize {
		return nil
	}
	c, ok := x.Context().(*runContext)
	if !ok {
		return nil
	}
	c.make()
	if _, ok := r.end(x.life); !ok {
		return nil
	}
	p, token, outer := r.part, r.token, r.outer
	if r.began != 0 {
		p.keys.counts.ran(r)
	}
	r.reset()
	s := c.stream()
	if !c.letGo() {
		p.free(x.key, token, outer)
	}
	return s
}

// letGo notes that the execution of c has ended, and that its context goes on. It
// reports whether others run within it yet, of which the last one frees the key.
func (c *runContext) letGo() (busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.within > 0
}

// stream makes c the context of a stream, which is bound neither by a timeout nor by
// its key's lease.
func (c *runContext) stream() *stream {
	s, p := &stream{run: c}, c.part
	c.streams.Store(true)
	p.mu.Lock()
	p.untrackLocked(c)
	stays := p.open.Load() // which is said before endStreams looks
	if stays && p.streams == nil {
		p.streams = make(map[*runContext]struct{})
	}
	if stays {
		p.streams[c] = struct{}{}
	}
	p.mu.Unlock()
	if !stays {
		c.cancel(ErrStreamEnds)
	}
	if c.client != nil {
		s.unhook = context.AfterFunc(c.client, func() { c.cancel(errClientLeft) })
	}
	return s
}

// cancel ends the context of the stream, whose partition is given away.
func (s *stream) cancel() { s.run.cancel(ErrStreamEnds) }

// onAway sets what tells the client of the stream to connect again, in place of the end of the context. It reports
// false if that is to be done at once.
func (s *stream) onAway(away func()) (stays bool) {
	c, p := s.run, s.run.part
	p.mu.Lock()
	defer p.mu.Unlock()
	c.away = away
	_, stays = p.streams[c]
	return stays
}

// end ends the stream and its context. It may be called of no stream.
func (s *stream) end() {
	if s == nil {
		return
	}
	if s.unhook != nil {
		s.unhook()
	}
	c, p := s.run, s.run.part
	p.mu.Lock()
	delete(p.streams, c)
	if c.gone != nil {
		c.gone.Stop()
	}
	p.mu.Unlock()
	c.cancel(nil)
}

// endStreams ends the streams of a partition that is given away.
func (p *partition) endStreams() {
	p.mu.Lock()
	ended := p.streams
	p.streams = nil
	aways := make([]func(), 0, len(ended))
	for c := range ended {
		if c.away != nil {
			aways = append(aways, c.away)
		} else {
			aways = append(aways, func() { c.cancel(ErrStreamEnds) })
		}
	}
	p.mu.Unlock()
	for _, away := range aways {
		away()
	}
}
