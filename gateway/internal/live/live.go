// Package live sends what is gathered once a second to all viewers, as server-sent events.
//
// The viewer that first finds the last event old gathers the next one, and all viewers get the same bytes. If it leaves
// meanwhile, another one gathers. Nothing is gathered without a viewer. A viewer that does not read its events is dropped.
package live

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// MaxViewers is how many may watch at once; others get 503.
	MaxViewers = 32

	// Every is how often is gathered.
	Every = time.Second

	// WriteTimeout is how long one write to a viewer may take.
	WriteTimeout = 5 * time.Second
)

// Gather returns what is so at the moment, without a line break in it.
type Gather func(ctx context.Context) []byte

// Stream is an [http.Handler] that sends events until the client leaves or the server is closed.
type Stream struct {
	gather  Gather
	viewers atomic.Int32

	gathering chan struct{} // holds an element while gather runs and the fields that follow are used
	event     []byte
	at        time.Time // when it was gathered
}

// New returns a stream of gather's results. No two calls of it run at once.
func New(gather Gather) *Stream { return &Stream{gather: gather, gathering: make(chan struct{}, 1)} }

// ServeHTTP implements [http.Handler].
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.viewers.Add(-1)
	if s.viewers.Add(1) > MaxViewers {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d viewers have this page open already: close one of them", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	w.Header().Set("Connection", "close")     // which has a deadline from here on
	out := http.NewResponseController(w)
	send := func(event []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(WriteTimeout)) // where there are deadlines
		_, err := w.Write(event)
		return err == nil && out.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for event := s.next(r.Context()); event != nil && send(event); event = s.next(r.Context()) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
		}
	}
}

// next returns the event of the moment. It gathers one if the last one is about as old as Every. When ctx ends, it returns
// nil.
func (s *Stream) next(ctx context.Context) []byte {
	select {
	case s.gathering <- struct{}{}:
		defer func() { <-s.gathering }()
	case <-ctx.Done():
		return nil
	}
	if now := time.Now(); ctx.Err() == nil && now.Sub(s.at) > Every-Every/10 { // tickers do not tick to the microsecond
		event := fmt.Appendf(nil, "data: %s\n\n", s.gather(ctx))
		if ctx.Err() == nil { // else it may not be whole
			s.at, s.event = now, event
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return s.event
}
