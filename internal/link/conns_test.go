package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMoreConnections: a client makes another connection when the others are
// half full, fails at once when all are full, and closes what it needs no more.
func TestMoreConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/slow" {
				<-goOn
			}
		}, Config{MaxStreams: 4})
		p.Client.Conns = 3
		var wg sync.WaitGroup
		start := func(n int) {
			for range n {
				wg.Go(func() {
					if _, err := p.get(t, "/slow"); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
		}
		for _, step := range []struct{ more, conns int32 }{{2, 1}, {1, 2}, {1, 2}, {1, 3}, {7, 3}} {
			start(int(step.more))
			if n := p.dials.Load(); n != step.conns {
				t.Errorf("%d connections, want %d", n, step.conns)
			}
		}
		began := time.Now()
		_, err := p.get(t, "/")
		want(t, err, ErrTooManyStreams)
		want(t, err, ErrNotStarted)
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v to fail", d)
		}
		close(goOn)
		wg.Wait()
		if _, err := p.get(t, "/"); err != nil {
			t.Error(err)
		}
		time.Sleep(idleAfter - 2*time.Second)
		synctest.Wait()
		if n := p.left(); n != 3 {
			t.Errorf("%d connections are left too early, want 3", n)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := p.left(); n != 1 {
			t.Errorf("%d connections are left, want 1", n)
		}
		if _, err := p.get(t, "/"); err != nil || p.dials.Load() != 3 {
			t.Errorf("%v, %d connections made", err, p.dials.Load())
		}
	})
}

// left returns how many connections have not ended.
func (p *pair) left() int {
	p.Client.mu.Lock()
	defer p.Client.mu.Unlock()
	return len(p.Client.conns)
}

// TestMoreConnectionsFail: while no other connection can be made, the one that
// there is takes requests until it is full, and then says so.
func TestMoreConnectionsFail(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return errors.New("no route") },
		"silent": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { <-goOn }, Config{MaxStreams: 4})
				p.Client.Conns = 2
				dial := p.Dial
				p.Dial = func(ctx context.Context) (net.Conn, error) {
					if p.dials.Load() > 0 {
						return nil, fail(ctx)
					}
					return dial(ctx)
				}
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if _, err := p.get(t, "/"); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Second)
				}
				began := time.Now()
				_, err := p.get(t, "/")
				want(t, err, ErrTooManyStreams)
				if d := time.Since(began); d > 2*dialPatience {
					t.Errorf("it took %v to fail", d)
				}
				close(goOn)
				wg.Wait()
			})
		})
	}
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
