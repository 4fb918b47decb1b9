// Package live sends what is gathered once a second to all viewers, as server-sent events.
//
// The viewer that first finds the last event old gathers the next one, and all viewers get the same bytes. Nothing is
// gathered without a viewer. A viewer that does not read its events is dropped.
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

	// WriteTimeout is how long one write to a viewer may take.
	WriteTimeout = 5 * time.Second
)

// Gather returns what is so at the moment, without a line break in it.
type Gather func(ctx context.Context) []byte

// Stream is an [http.Handler] that sends events until the client leaves or the server is closed. A run begins with its
// first viewer, and ends with its last one.
type Stream struct {
	begin func() Gather

	mu      sync.Mutex // guards what follows
	viewers int
	run     context.Context // nil before the first viewer
	end     context.CancelFunc

	gathering chan struct{}   // holds an element while the fields that follow are used
	of        context.Context // the run of gather
	gather    Gather
	event     []byte
	at        time.Time // when it was gathered
}

// New returns a stream of the results of begin's Gather. begin is called in each run; no two of its results are in use
// at once.
func New(begin func() Gather) *Stream {
	return &Stream{begin: begin, gathering: make(chan struct{}, 1)}
}

// ServeHTTP implements [http.Handler].
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run := s.join()
	if run == nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d viewers have this page open already: close one of them", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	gone := context.AfterFunc(r.Context(), s.leave) // at once, even while it gathers
	defer func() {
		if gone() {
			s.leave()
		}
	}()
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
	for r.Context().Err() == nil && send(s.next(run)) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
		}
	}
}

// join lets another viewer watch, and returns its run; nil if there are too many.
func (s *Stream) join() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers == MaxViewers {
		return nil
	}
	if s.viewers == 0 {
		s.run, s.end = context.WithCancel(context.Background())
	}
	s.viewers++
	return s.run
}

func (s *Stream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewers--; s.viewers == 0 {
		s.end()
	}
}

// next returns the event of the moment in a run. It gathers one if the last one is about as old as Every.
func (s *Stream) next(run context.Context) []byte {
	s.gathering <- struct{}{}
	defer func() { <-s.gathering }()
	if s.of != run {
		s.of, s.gather, s.at = run, s.begin(), time.Time{}
	}
	if now := time.Now(); now.Sub(s.at) > Every-Every/10 { // tickers do not tick to the microsecond
		s.at, s.event = now, fmt.Appendf(nil, "data: %s\n\n", s.gather(run))
	}
	return s.event
}
