package hop1

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A request over the bound waits for as long as the pool says, and is not sent.
func TestFullPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := 0
		p := &Pool{Conns: 1, Wait: 5 * time.Second, Full: func() { full++ }, Dial: func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				far.Read(make([]byte, 1<<10))
				time.Sleep(8 * time.Second)
				far.Write([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
			}()
			return near, nil
		}}
		defer p.Close()
		first := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), p, "GET", get)
			first <- err
		}()
		synctest.Wait()
		start := time.Now()
		if _, err := ask(t.Context(), p, "GET", get); !errors.Is(err, ErrFull) || !errors.Is(err, ErrNotStarted) || time.Since(start) != 5*time.Second || full != 1 {
			t.Errorf("after %v: %v; was full %d times", time.Since(start), err, full)
		}
		if got, err := ask(t.Context(), p, "GET", get); err != nil || full != 2 {
			t.Errorf("one became free in time: %q, %v; was full %d times", got, err, full)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// Trim closes the idle connections that were used longest ago.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialed atomic.Int32
		var closed [3]atomic.Bool
		p := &Pool{Conns: len(closed)}
		p.Dial = func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			closed := &closed[dialed.Add(1)-1]
			go func() {
				defer far.Close()
				for b := make([]byte, 1<<10); ; {
					if _, err := far.Read(b); err != nil {
						closed.Store(true)
						return
					}
					time.Sleep(time.Second)
					far.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				}
			}()
			return near, nil
		}
		defer p.Close()
		for range closed {
			go ask(t.Context(), p, "GET", get)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		for _, tt := range []struct {
			most, left int
			closed     [3]bool
		}{{4, 3, [3]bool{}}, {1, 1, [3]bool{true, true, false}}, {-1, 0, [3]bool{true, true, true}}} {
			left := p.Trim(tt.most)
			synctest.Wait()
			if got := [3]bool{closed[0].Load(), closed[1].Load(), closed[2].Load()}; left != tt.left || got != tt.closed {
				t.Errorf("Trim(%d): %d are left, closed are %v, want %d, %v", tt.most, left, got, tt.left, tt.closed)
			}
		}
	})
}
