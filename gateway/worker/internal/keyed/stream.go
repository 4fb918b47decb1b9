package keyed

import (
	"errors"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
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

// Cancel ends the context of the stream, whose partition is given away.
func (s *Stream) Cancel() { s.run.Cancel(appstate.ErrStreamEnds) }

// OnAway sets a function that tells the client of the stream to connect again; it is called instead
// of ending the context. OnAway returns false if the caller must do that at once.
func (s *Stream) OnAway(away func()) (stays bool) {
	c, p := s.run, s.run.part
	p.mu.Lock()
	defer p.mu.Unlock()
	c.away = away
	_, stays = p.streams[c]
	return stays
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
	delete(p.streams, c)
	if c.gone != nil {
		c.gone.Stop()
	}
	p.mu.Unlock()
	c.Cancel(nil)
}
