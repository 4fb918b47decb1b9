package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			w.Refuse(&RefusedError{Reason: NotOwner, Owner: "w2-a1", Addr: "10.0.0.2:80", Epoch: 9})
			if err := w.WriteHead(200, 0, nil); !errors.Is(err, ErrAnswered) {
				t.Errorf("answered after a refusal: %v", err)
			}
		}, Config{})
		_, err := p.get(t, "/")
		want(t, err, ErrNotStarted)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || *refused != (RefusedError{NotOwner, "w2-a1", "10.0.0.2:80", 9}) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRefusedBodyIsSentAgain lets one worker refuse a request whose body it
// has been sent in part, and another one take it.
func TestRefusedBodyIsSentAgain(t *testing.T) {
	for _, size := range []int{10, inlineBody + 1, initialWindow - 1, initialWindow, initialWindow + 1, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				no := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					r.Body.Read(make([]byte, 100))
					if err := w.Refuse(&RefusedError{Reason: Unavailable}); err != nil {
						t.Error(err)
					}
				}, Config{})
				yes := newPair(t, echo, Config{})
				body := strings.Repeat("abcdefg", size/7+1)[:size]
				for _, req := range []*Request{post(body), chunked(strings.NewReader(body))} {
					for range 3 {
						_, err := no.Do(t.Context(), req)
						want(t, err, ErrNotStarted)
					}
					got, err := fetch(t.Context(), &yes.Client, req)
					if got != body || err != nil {
						t.Errorf("got %d bytes, %v; want %d", len(got), err, size)
					}
					<-req.BodyDone()
					_, err = yes.Do(t.Context(), req)
					want(t, err, ErrClosed)
				}
			})
		})
	}
}

// TestNoRefusalAfterAdmission: once the client was told that it need not keep
// the body, the request cannot be refused any more.
func TestNoRefusalAfterAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			io.CopyN(io.Discard, r.Body, initialWindow/2)
			want(t, w.Refuse(&RefusedError{Reason: Busy}), ErrAnswered)
		}, Config{})
		if _, err := fetch(t.Context(), &p.Client, chunked(strings.NewReader(strings.Repeat("x", 3*initialWindow)))); err != nil {
			t.Error(err)
		}
	})
}

// TestShortBodiesCanBeRefused: a body that the client keeps whole can be refused
// however much of it has been read, also before the rest has come.
func TestShortBodiesCanBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
			io.CopyN(io.Discard, r.Body, 3*maxData)
			want(t, w.Refuse(&RefusedError{Reason: NotOwner}), nil)
		})}
		near, far := net.Pipe()
		served := make(chan error)
		go func() { served <- s.ServeConn(far) }()
		peer := newFakePeer(near)
		peer.greet(t)
		head := plainHead("POST")
		head.ContentLength = initialWindow
		go near.Write(append(requestFrame(1, head, false), dataFrames(1, 3)...))
		if h, _ := peer.frame(t); h.kind != kindRefused {
			t.Errorf("got %v, want a refusal", h.kind)
		}
		near.Close()
		<-served
	})
}

// TestBodyReaderBlocksDuringRefusal: the refusal does not wait for the client
// whose body is still awaited, and nothing that comes in later is lost.
func TestBodyReaderBlocksDuringRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := newPair(t, func(w *ResponseWriter, r *ServerRequest) { w.Refuse(&RefusedError{Reason: Unavailable}) }, Config{})
		yes := newPair(t, echo, Config{})
		r, w := io.Pipe()
		req := chunked(r)
		_, err := no.Do(t.Context(), req)
		want(t, err, ErrNotStarted)
		go func() {
			io.WriteString(w, "first ")
			io.WriteString(w, "second")
			w.Close()
		}()
		synctest.Wait()
		got, err := fetch(t.Context(), &yes.Client, req)
		if got != "first second" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestLostConnectionIsLogged: the client's log says what was lost with a
// connection, and nothing of one that carried nothing or was closed on purpose.
func TestLostConnectionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/wait" {
				<-r.Context().Done()
			}
		}, Config{})
		p.Client.Config.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p.get(t, "/")
		p.last().Close()
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("an idle connection: %s", &log)
		}
		failed := make(chan error)
		p.get(t, "/")
		time.Sleep(3 * time.Second)
		for range 2 {
			go func() {
				_, err := p.get(t, "/wait")
				failed <- err
			}()
		}
		synctest.Wait()
		p.last().Close()
		want(t, <-failed, ErrLost)
		want(t, <-failed, ErrLost)
		synctest.Wait()
		for _, what := range []string{"level=WARN", "connection lost", "peer=pipe", "age=3s", "requests=3", "lost=2", "not_started=0", "error="} {
			if strings.Count(log.String(), what) != 1 {
				t.Errorf("%s is not there once: %s", what, &log)
			}
		}
		log.Reset()
		go func() {
			_, err := p.get(t, "/wait")
			failed <- err
		}()
		synctest.Wait()
		go p.Client.Close()
		want(t, <-failed, ErrLost)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("closed on purpose: %s", &log)
		}
	})
}

// TestLostConnection cuts the connection at all moments of a request's life
// and looks at what the client is told.
func TestLostConnection(t *testing.T) {
	t.Run("no connection", func(t *testing.T) {
		c := &Client{Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("no route") }}
		defer c.Close()
		_, err := c.Do(t.Context(), post("x"))
		want(t, err, ErrNotStarted)
	})
	t.Run("handler runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var p *pair
			p = newPair(t, func(w *ResponseWriter, r *ServerRequest) {
				p.last().Close()
				<-r.Context().Done()
			}, Config{})
			_, err := p.get(t, "/")
			want(t, err, ErrLost)
			wantNot(t, err, ErrNotStarted)
		})
	})
	t.Run("answer half done", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
				w.WriteHead(200, 10, nil)
				io.WriteString(w, "half")
				w.Flush()
				<-r.Context().Done()
			}, Config{})
			resp, err := p.Do(t.Context(), post(""))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			synctest.Wait()
			p.last().Close()
			got, err := io.ReadAll(resp.Body)
			if string(got) != "half" {
				t.Errorf("got %q", got)
			}
			want(t, err, ErrLost)
		})
	})
	t.Run("not yet written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			peer := newFakePeer(far)
			c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
			defer c.Close()
			go func() {
				peer.handshake(t)
				peer.frame(t) // the first request; the second stays in the client's queue
			}()
			do := func(target string) chan error {
				result := make(chan error, 1)
				go func() {
					_, err := c.Do(t.Context(), &Request{Method: "GET", Target: target, Host: "h"})
					result <- err
				}()
				synctest.Wait()
				return result
			}
			first, second := do("/1"), do("/2")
			far.Close()
			err := <-first
			want(t, err, ErrLost)
			wantNot(t, err, ErrNotStarted)
			want(t, <-second, ErrNotStarted)
		})
	})
	for name, tc := range map[string]struct {
		more int // bytes that get through besides all of the head
		want error
	}{
		"head incomplete":                {-1, ErrNotStarted},
		"head complete":                  {0, ErrLost},
		"head complete, not so the body": {50, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				peer := newFakePeer(far)
				c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
				defer c.Close()
				req := post(strings.Repeat("x", 100))
				head := req.appendHead(nil, 0)
				go func() {
					peer.answerHello(t)
					io.CopyN(io.Discard, far, int64(len(proofFrame())+headerLen+len(head)+tc.more))
					far.Close()
				}()
				_, err := c.Do(t.Context(), req)
				want(t, err, tc.want)
				if tc.want == ErrLost {
					wantNot(t, err, ErrNotStarted)
				}
			})
		})
	}
}

// TestReconnect: a client whose connection was lost dials again.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "ok") }, Config{})
		for range 3 {
			if got, err := p.get(t, "/"); got != "ok" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
			p.last().Close()
			synctest.Wait()
		}
		if n := p.dials.Load(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
	})
}

// TestFailedDialIsRemembered: requests that come right after a failed dial
// fail with it and do not dial.
func TestFailedDialIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c := &Client{Dial: func(context.Context) (net.Conn, error) { dials++; return nil, errors.New("no route") }}
		defer c.Close()
		for range 5 {
			_, err := c.Do(t.Context(), post(""))
			want(t, err, ErrNotStarted)
		}
		if dials != 1 {
			t.Errorf("%d dials at once, want 1", dials)
		}
		time.Sleep(redialAfter)
		c.Do(t.Context(), post(""))
		if dials != 2 {
			t.Errorf("%d dials later, want 2", dials)
		}
	})
}

// TestDialBounded: a peer that accepts and says nothing fails the request
// after handshakeTimeout, and a done context before.
func TestDialBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
		defer c.Close()
		go io.Copy(io.Discard, far)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Do(ctx, post(""))
		want(t, err, ErrNotStarted)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != time.Second {
			t.Errorf("gave up after %v, want 1s", d)
		}
		_, err = c.Do(t.Context(), post(""))
		want(t, err, ErrNotStarted)
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("gave up after %v, want 5s", d)
		}
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			<-goOn
			text(w, "done")
		}, Config{})
		got := make(chan string)
		go func() {
			s, err := p.get(t, "/")
			got <- fmt.Sprint(s, err)
		}()
		synctest.Wait()
		shut := make(chan error)
		go func() { shut <- p.Server.Shutdown(t.Context()) }()
		synctest.Wait()
		_, err := p.get(t, "/late")
		want(t, err, ErrNotStarted)
		close(goOn)
		if s := <-got; s != "done<nil>" {
			t.Errorf("the running request got %s", s)
		}
		start := time.Now()
		if err := <-shut; err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the shutdown took %v", d)
		}
	})
}

func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { <-r.Context().Done() }, Config{})
		go p.get(t, "/")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, p.Server.Shutdown(ctx), context.DeadlineExceeded)
	})
}

// TestGoAwayReleasesLaterStreams: a request that crossed a goaway did not
// start, one before it goes on.
func TestGoAwayReleasesLaterStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		peer := newFakePeer(far)
		c := &Client{Dial: func(context.Context) (net.Conn, error) {
			if near == nil {
				return nil, errors.New("no route")
			}
			defer func() { near = nil }()
			return near, nil
		}}
		defer c.Close()
		results := map[string]chan error{"/1": make(chan error, 1), "/2": make(chan error, 1)}
		do := func(target string) {
			_, err := fetch(t.Context(), c, &Request{Method: "GET", Target: target, Host: "h"})
			results[target] <- err
		}
		go do("/1")
		peer.handshake(t)
		peer.frame(t)
		go do("/2")
		peer.frame(t)
		peer.write(t, appendControl(nil, kindGoAway, 0, 1))
		want(t, <-results["/2"], ErrNotStarted)
		head := responseHead{status: 200}
		peer.write(t, appendFrame(nil, header{kind: kindResponse, stream: 1, end: true}, head.append(nil)))
		if err := <-results["/1"]; err != nil {
			t.Error(err)
		}
	})
}

// TestNoStartAfterGoAway: a server that drains does not start what comes
// later.
func TestNoStartAfterGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
			if r.Epoch == 2 {
				t.Error("it ran")
			}
			<-goOn
		})}
		near, far := net.Pipe()
		go s.ServeConn(far)
		peer := newFakePeer(near)
		peer.greet(t)
		peer.write(t, requestFrame(1, plainHead("GET"), true))
		synctest.Wait()
		go s.Shutdown(t.Context())
		if h, b := peer.frame(t); h.kind != kindGoAway || b[0] != 1 {
			t.Errorf("%v %v in place of goaway", h.kind, b)
		}
		second := plainHead("PUT")
		second.Epoch = 2
		peer.write(t, append(requestFrame(2, second, false), dataFrames(2, 1)...))
		close(goOn)
		if h, _ := peer.frame(t); h.kind != kindResponse || h.stream != 1 {
			t.Errorf("%v on stream %d", h.kind, h.stream)
		}
		near.Close()
	})
}

// TestRefusedTooLate: a refusal that comes when the body is no longer kept
// does not invite to another attempt.
func TestRefusedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		peer := newFakePeer(far)
		c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
		defer c.Close()
		go func() {
			peer.handshake(t)
			for sum := 0; sum < initialWindow; {
				_, b := peer.frame(t)
				if sum == 0 || len(b) > 100 {
					sum += len(b)
				}
			}
			peer.write(t, appendControl(nil, kindWindow, 1, 100))
			peer.frame(t)
			go io.Copy(io.Discard, far)
			peer.write(t, appendFrame(nil, header{kind: kindRefused, stream: 1, end: true}, appendRefusal(nil, &RefusedError{Reason: Busy})))
		}()
		_, err := c.Do(t.Context(), chunked(zeros{}))
		want(t, err, ErrProtocol)
		wantNot(t, err, ErrNotStarted)
	})
}

// TestCloseWhileDraining: Close ends connections, too, that only finish what
// they carry.
func TestCloseWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { <-r.Context().Done() }, Config{})
		running := make(chan error)
		go func() {
			_, err := p.get(t, "/")
			running <- err
		}()
		synctest.Wait()
		shut := make(chan error)
		go func() { shut <- p.Server.Shutdown(t.Context()) }()
		synctest.Wait()
		p.get(t, "/dials anew")
		p.Client.Close()
		want(t, <-running, ErrClosed)
		if err := <-shut; err != nil {
			t.Error(err)
		}
	})
}
