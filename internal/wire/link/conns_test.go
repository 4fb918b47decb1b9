package link

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A client whose connection carries all that the worker takes fails further requests at once.
func TestFullConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 4
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/slow" {
				<-goOn
			}
		}, Config{MaxStreams: streams})
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				if _, err := p.get(t, "/slow"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		_, err := p.get(t, "/")
		want(t, err, ErrTooManyStreams)
		want(t, err, ErrNotStarted)
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v to fail", d)
		}
		close(goOn)
		wg.Wait()
		if _, err := p.get(t, "/"); err != nil || p.dials.Load() != 1 {
			t.Errorf("%v, %d connections made", err, p.dials.Load())
		}
	})
}

// TestWaitingShare: at most half of what a connection takes at once may wait.
func TestWaitingShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if !r.BeginWait() {
				w.Refuse(&RefusedError{Reason: Busy})
				return
			}
			defer r.EndWait()
			<-goOn
		}, Config{MaxStreams: 6})
		var wg sync.WaitGroup
		var refused atomic.Int32
		for range 6 {
			wg.Go(func() {
				_, err := p.get(t, "/")
				if e, ok := errors.AsType[*RefusedError](err); ok && e.Reason == Busy {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != 3 {
			t.Errorf("%d of 6 were refused, want 3", n)
		}
		close(goOn)
		wg.Wait()
		if _, err := p.get(t, "/"); err != nil {
			t.Errorf("after the others: %v", err)
		}
	})
}

// TestUnreadAnswersMakeRoom: answers that nobody reads give way, the one that
// has waited longest for its reader first, before they take all of a connection.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/large" {
				w.Write(make([]byte, size))
			}
		}, Config{MaxStreams: 8})
		var answers []*Response
		for range 20 {
			resp, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/large", Host: "h"})
			if err != nil {
				t.Fatalf("after %d: %v", len(answers), err)
			}
			defer resp.Body.Close()
			answers = append(answers, resp)
			synctest.Wait()
		}
		for range 20 {
			if _, err := p.get(t, "/"); err != nil {
				t.Fatal(err)
			}
		}
		for i, resp := range answers {
			n, err := io.Copy(io.Discard, resp.Body)
			if whole := i >= 20-6; whole && (n != size || err != nil) {
				t.Errorf("answer %d: %d bytes, %v", i, n, err)
			} else if reset, ok := errors.AsType[*ResetError](err); !whole && (!ok || reset.Code != CodeAborted) {
				t.Errorf("answer %d: %d bytes, %v; want it to be aborted", i, n, err)
			}
		}
	})
}

// TestWaitersMakeRoomToo: requests that wait count beside answers that nobody
// reads.
func TestWaitersMakeRoomToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			switch r.Target {
			case "/large":
				w.Write(make([]byte, 1<<20))
			case "/wait":
				if r.BeginWait() {
					<-goOn
					r.EndWait()
				}
			}
		}, Config{MaxStreams: 8})
		var wg sync.WaitGroup
		for range 6 {
			resp, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/large", Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			synctest.Wait()
		}
		for range 4 {
			wg.Go(func() {
				if _, err := p.get(t, "/wait"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if _, err := p.get(t, "/"); err != nil {
			t.Error(err)
		}
		close(goOn)
		wg.Wait()
	})
}

// A client's connections can be counted before its first request, and meanwhile.
func TestOpen(t *testing.T) {
	p := newPair(t, echo, Config{})
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() {
		if n := p.Client.Open(); n > 1 {
			t.Errorf("%d connections, want at most one", n)
		}
	})
	if _, err := p.get(t, "/"); err != nil {
		t.Fatal(err)
	}
	if n := p.Client.Open(); n != 1 {
		t.Errorf("%d connections after a request, want 1", n)
	}
}
