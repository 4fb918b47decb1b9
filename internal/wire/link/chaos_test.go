package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// cutConn breaks after it has written a number of bytes, most likely in the
// middle of a frame.
type cutConn struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) < c.left {
		c.left -= len(p)
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.left])
	c.left = 0
	c.Conn.Close()
	return n, net.ErrClosed
}

// TestChaos cuts connections all the time and holds the link to its word: a
// request that did not start never ran, one that was answered ran once, and
// none ran twice.
func TestChaos(t *testing.T) {
	var mu sync.Mutex
	ran := map[string]int{}
	s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
		mu.Lock()
		ran[r.Key]++
		mu.Unlock()
		if len(r.Key)%3 == 0 {
			io.Copy(w, r.Body)
			return
		}
		w.Write(make([]byte, 300))
	})}
	var random sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	amount := func(n int) int {
		random.Lock()
		defer random.Unlock()
		return rnd.IntN(n)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(&cutListener{ln, func() int { return 200 + amount(20000) }})
	c := &Client{Config: logless(), Dial: func(ctx context.Context) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: nc, left: 400 + amount(60_000)}, nil // more than the handshake, and than all requests at once
	}}
	var outcomes struct{ answered, unknown, notStarted int }
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 150 {
				key := fmt.Sprint(g, "/", i)
				req := &Request{Method: "POST", Target: "/", Host: "h", Key: key, ContentLength: -1, Body: io.LimitReader(zeros{}, int64(amount(3000)))}
				err := attempt(t.Context(), c, req, amount(10) == 0)
				mu.Lock()
				n := ran[key]
				switch {
				case err == nil:
					outcomes.answered++
					if n != 1 {
						t.Errorf("%s was answered and ran %d times", key, n)
					}
				case errors.Is(err, ErrNotStarted):
					outcomes.notStarted++
				default:
					outcomes.unknown++
				}
				if errors.Is(err, ErrNotStarted) {
					ran[key] -= 1000 // it must not run later either
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	c.Close()
	s.Shutdown(t.Context())
	for key, n := range ran {
		if n > 1 || n < 0 && n != -1000 {
			t.Errorf("%s ran %d times (less 1000: though it had not started)", key, n)
		}
	}
	if outcomes.answered == 0 || outcomes.unknown == 0 || outcomes.notStarted == 0 {
		t.Errorf("not all outcomes were seen: %+v", outcomes)
	}
}

// attempt does a request, perhaps with little time.
func attempt(ctx context.Context, c *Client, req *Request, hurried bool) error {
	if hurried {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
	}
	_, err := fetch(ctx, c, req)
	return err
}

// cutListener yields connections that break.
type cutListener struct {
	net.Listener
	after func() int
}

func (l *cutListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: nc, left: l.after()}, nil
}
