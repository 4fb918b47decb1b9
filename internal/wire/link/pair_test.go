package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pair is a client and a server over connections in memory, for use in a
// synctest bubble: the bubble fails if one of their goroutines is left over.
type pair struct {
	Client
	Server
	dials atomic.Int32
	conns []*flakyConn // the client's ends
	mu    sync.Mutex
	wg    sync.WaitGroup
	ended []error // what ServeConn returned
}

// flakyConn is a connection that can be made to lose what is written, both
// ways, without an error.
type flakyConn struct {
	net.Conn
	hole *atomic.Bool
}

func (c *flakyConn) Write(p []byte) (int, error) {
	if c.hole.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes this end; the other one does not learn of it through a hole.
func (c *flakyConn) Close() error {
	if c.hole.Load() {
		return c.SetDeadline(time.Unix(1, 0))
	}
	return c.Conn.Close()
}

// newPair returns a pair whose server runs h. Both are closed when the test
// ends.
func newPair(t *testing.T, h HandlerFunc, cfg Config) *pair {
	t.Helper()
	p := &pair{}
	cfg.Logger = slog.New(slog.DiscardHandler)
	p.Client.Config, p.Server.Config = cfg, cfg
	p.Server.Handler = h
	p.Dial = func(context.Context) (net.Conn, error) {
		p.dials.Add(1)
		near, far := net.Pipe()
		hole := new(atomic.Bool)
		near, far = &flakyConn{near, hole}, &flakyConn{far, hole}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns = append(p.conns, near.(*flakyConn))
		p.wg.Go(func() {
			err := p.ServeConn(far)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended = append(p.ended, err)
		})
		return near, nil
	}
	t.Cleanup(p.stop)
	return p
}

// stop closes both ends and waits for everything.
func (p *pair) stop() {
	p.Client.Close()
	p.Server.Close()
	p.wg.Wait()
}

// last returns the client's end of the connection dialed last.
func (p *pair) last() *flakyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[len(p.conns)-1]
}

// get does a GET and returns the answer's body.
func (p *pair) get(t *testing.T, target string) (string, error) {
	t.Helper()
	return fetch(t.Context(), &p.Client, &Request{Method: "GET", Target: target, Host: "h"})
}

// fetch does a request and returns the answer's body.
func fetch(ctx context.Context, c *Client, req *Request) (string, error) {
	resp, err := c.Do(ctx, req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// post returns a request with a body.
func post(body string) *Request {
	return &Request{Method: "POST", Target: "/", Host: "h", Body: strings.NewReader(body), ContentLength: int64(len(body))}
}

// chunked returns a request with a body of unknown length.
func chunked(body io.Reader) *Request {
	return &Request{Method: "POST", Target: "/", Host: "h", Body: body, ContentLength: -1}
}

// text answers with the given text.
func text(w *ResponseWriter, s string) {
	w.WriteHead(200, int64(len(s)), nil)
	io.WriteString(w, s)
}

// echo answers with the request's body.
func echo(w *ResponseWriter, r *ServerRequest) {
	io.Copy(w, r.Body)
}

// want fails the test unless err is one of targets.
func want(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			return
		}
	}
	t.Errorf("error %v, want %v", err, targets)
}

// wantNot fails the test if err is target.
func wantNot(t *testing.T, err, target error) {
	t.Helper()
	if err == nil || errors.Is(err, target) {
		t.Errorf("error %v, want one that is not %v", err, target)
	}
}

// logless is a Config that logs nothing.
func logless() Config {
	return Config{Logger: slog.New(slog.DiscardHandler)}
}
