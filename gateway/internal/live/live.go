// Package live sends what one goroutine gathers to all viewers, as server-sent events.
//
// The goroutine runs while there are viewers, and gathers once a second. All viewers get the same
// bytes. A viewer that does not read its events is dropped.
package live

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// MaxViewers is how many may watch at once; others get 503.
	MaxViewers = 32

	// Every is how often is gathered.
	Every = time.Second

	// Heartbeat is after how long a viewer gets a comment, if there is nothing else.
	Heartbeat = 5 * time.Second

	// WriteTimeout is how long one write to a viewer may take.
	WriteTimeout = 5 * time.Second

	backlog = 4 // events that a viewer has not been sent yet; with one more it is dropped
)

// Gather returns what is so at the moment, without a line break in it.
type Gather func(ctx context.Context) []byte

// Stream is an [http.Handler] that sends events until the client leaves or the server is closed.
// The first viewer starts its goroutine; the last one stops it and waits for its end. mu guards the
// viewers.
type Stream struct {
	begin func() Gather

	mu      sync.Mutex           // guards what follows
	viewers map[chan []byte]bool // by their events; false for one that was dropped, whose channel is closed
	last    []byte               // event, nil before the first one
	stop    context.CancelFunc   // ends the goroutine
	ended   chan struct{}        // is closed when it has
}

// New returns a stream of the results of begin's Gather. begin is called each time the first viewer
// comes; no two of its results are in use at once.
func New(begin func() Gather) *Stream {
	return &Stream{begin: begin, viewers: make(map[chan []byte]bool)}
}

// ServeHTTP implements [http.Handler].
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events := s.join()
	if events == nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d viewers have this page open already: close one of them", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	defer s.removeViewer(events)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	w.Header().Set("Connection", "close")     // which has a deadline from here on
	out := http.NewResponseController(w)
	heartbeat := time.NewTicker(Heartbeat)
	defer heartbeat.Stop()
	for event := []byte("retry: 2000\n\n"); ; {
		_ = out.SetWriteDeadline(time.Now().Add(WriteTimeout)) // where there are deadlines
		if _, err := w.Write(event); err != nil || out.Flush() != nil {
			return
		}
		heartbeat.Reset(Heartbeat)
		var open bool
		select {
		case event, open = <-events:
			if !open {
				return
			}
		case <-heartbeat.C:
			event = []byte(":\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// join lets another viewer watch, and returns nil if there are too many.
func (s *Stream) join() (events chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) == MaxViewers {
		return nil
	}
	if len(s.viewers) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		before, ended := s.ended, make(chan struct{})
		s.last, s.stop, s.ended = nil, cancel, ended
		go s.run(ctx, before, ended)
	}
	events = make(chan []byte, backlog)
	if s.viewers[events] = true; s.last != nil {
		events <- s.last
	}
	return events
}

// removeViewer ends a viewer's watching, and the goroutine with that of the last one.
func (s *Stream) removeViewer(events chan []byte) {
	s.mu.Lock()
	delete(s.viewers, events)
	last, ended := len(s.viewers) == 0, s.ended
	if last {
		s.stop()
	}
	s.mu.Unlock()
	if last {
		<-ended
	}
}

// run gathers until ctx ends. It begins when the run before, if there was one, has
// ended.
func (s *Stream) run(ctx context.Context, before <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	if before != nil {
		<-before
	}
	gather := s.begin()
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		s.publish(ctx, fmt.Appendf(nil, "data: %s\n\n", gather(ctx)))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publish gives all viewers an event of a run, unless that is to end.
func (s *Stream) publish(ctx context.Context, event []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	s.last = event
	for events, open := range s.viewers {
		if !open {
			continue
		}
		select {
		case events <- event:
		default:
			s.viewers[events] = false
			close(events)
		}
	}
}
