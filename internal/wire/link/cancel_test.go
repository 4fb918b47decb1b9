package link

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestClientCancels(t *testing.T) {
	for _, when := range []string{"before the head", "in the body"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					if when == "in the body" {
						io.WriteString(w, "x")
						w.Flush()
					}
					<-r.Context().Done()
					ended <- context.Cause(r.Context())
				}, Config{})
				gone := errors.New("the client hung up")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(gone) })
				resp, err := p.Do(ctx, post(""))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				want(t, err, gone)
				wantNot(t, err, ErrNotStarted)
				want(t, <-ended, context.Canceled)
			})
		})
	}
}

// TestClosedBodyCancels: a client that closes an unfinished answer ends the
// handler's context and its writes.
func TestClosedBodyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 10<<10))
			}
			<-r.Context().Done()
			ended <- err
		}, Config{})
		resp, err := p.Do(t.Context(), post(""))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if err := <-ended; err == nil {
			t.Error("writing went on")
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body could be read")
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			start := time.Now()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			<-ctx.Done()
			if d := time.Since(start); d != time.Second {
				t.Errorf("the handler's context ended after %v, want 1s", d)
			}
			ended <- ctx.Err()
			time.Sleep(time.Millisecond) // of the bubble's clock: or the answer might come in the very moment of the deadline
		}, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Do(ctx, post(""))
		want(t, err, context.DeadlineExceeded)
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

func TestDoneContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { t.Error("it ran") }, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Do(ctx, post(""))
		want(t, err, ErrNotStarted)
		want(t, err, context.Canceled)
	})
}

func TestHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			switch r.Target {
			case "/late":
				io.WriteString(w, "x")
				w.Flush()
				panic(http.ErrAbortHandler)
			case "/early":
				panic(http.ErrAbortHandler)
			}
			text(w, "ok")
		}, Config{})
		resp, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/late", Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if reset, ok := errors.AsType[*ResetError](err); !ok || reset.Code != CodeAborted {
			t.Errorf("got %v", err)
		}
		_, err = p.get(t, "/early")
		if reset, ok := errors.AsType[*ResetError](err); !ok || reset.Code != CodeAborted {
			t.Errorf("got %v", err)
		}
		if got, err := p.get(t, "/"); got != "ok" || err != nil || p.dials.Load() != 1 {
			t.Errorf("the connection did not survive: %q, %v", got, err)
		}
	})
}

// TestRequestBodyFails: an upload that breaks off resets the request.
func TestRequestBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("client gone")
		seen := make(chan error, 1)
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			_, err := io.ReadAll(r.Body)
			seen <- err
		}, Config{})
		r, w := io.Pipe()
		go func() {
			w.Write([]byte("half"))
			w.CloseWithError(broken)
		}()
		_, err := p.Do(t.Context(), chunked(r))
		want(t, err, broken)
		if err := <-seen; err == nil || err == io.EOF {
			t.Errorf("the handler saw %v", err)
		}
		short := post("abc")
		short.ContentLength = 5
		_, err = p.Do(t.Context(), short)
		want(t, err, io.ErrUnexpectedEOF)
		want(t, err, ErrNotStarted)
	})
}

// TestAnswerWithoutReading: an answer that comes before the body was read
// ends the upload.
func TestAnswerWithoutReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "no thanks") }, Config{})
		req := chunked(zeros{})
		got, err := fetch(t.Context(), &p.Client, req)
		if got != "no thanks" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		<-req.BodyDone()
	})
}

// TestRequestContext looks at the context's own promises.
func TestRequestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &requestContext{deadline: time.Now().Add(time.Second)}
		ran := 0
		context.AfterFunc(c, func() { ran++ })
		stop := context.AfterFunc(c, func() { t.Error("ran although it was stopped") })
		if !stop() || stop() {
			t.Error("stop")
		}
		if c.Err() != nil {
			t.Error("ended early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c.Err() != context.DeadlineExceeded || ran != 1 {
			t.Errorf("%v, ran %d times", c.Err(), ran)
		}
		<-c.Done()
		if context.AfterFunc(c, func() { ran++ })() {
			t.Error("stopped what had to run at once")
		}
		synctest.Wait()
		if ran != 2 {
			t.Error("a function added after the end did not run")
		}
		c.cancel()
		if c.Err() != context.DeadlineExceeded {
			t.Error("the error changed")
		}
		idle := &requestContext{deadline: time.Now().Add(time.Second)}
		time.Sleep(time.Second)
		if idle.Err() != context.DeadlineExceeded {
			t.Error("Err missed the deadline without a timer")
		}
	})
}

// ledger is an Account.
type ledger struct{ begun, ended atomic.Int32 }

func (l *ledger) Abandon(streams int) (ended func()) {
	l.begun.Add(1)
	return func() { l.ended.Add(1) }
}

// TestAbandonedRequestsCount: what a client has given up goes on counting until
// the handler has returned, and its account learns of both.
func TestAbandonedRequestsCount(t *testing.T) {
	for _, when := range []string{"before the head", "in the body"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
					if r.Target == "/" {
						return
					}
					if when == "in the body" {
						io.WriteString(w, "x")
						w.Flush()
					}
					<-goOn
				}, Config{MaxStreams: 3})
				account := new(ledger)
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					resp, err := p.Do(ctx, &Request{Method: "GET", Target: "/slow", Host: "h", Account: account})
					if err == nil {
						resp.Body.Close()
					}
					cancel()
				}
				synctest.Wait()
				if b, e := account.begun.Load(), account.ended.Load(); b != 3 || e != 0 {
					t.Errorf("%d were abandoned, %d of them have ended", b, e)
				}
				_, err := p.get(t, "/")
				want(t, err, ErrTooManyStreams)
				close(goOn)
				synctest.Wait()
				if e := account.ended.Load(); e != 3 {
					t.Errorf("%d of 3 have ended", e)
				}
				if _, err := p.get(t, "/"); err != nil {
					t.Error(err)
				}
				if n := p.dials.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

// TestAbandonedRequestsEnd: the account is not charged for what is over, and a
// connection that ends ends them all.
func TestAbandonedRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, left := make(chan struct{}), make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			switch r.Target {
			case "/slow":
				<-goOn
			case "/refused":
				w.Refuse(&RefusedError{Reason: Busy})
			case "/aborted":
				w.Abort()
			case "/late": // it answers when nobody wants it any more
				<-left
				w.Refuse(&RefusedError{Reason: Busy})
			}
			text(w, "ok")
		}, Config{})
		account := new(ledger)
		do := func(target string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			fetch(ctx, &p.Client, &Request{Method: "GET", Target: target, Host: "h", Account: account})
		}
		for _, target := range []string{"/", "/refused", "/aborted"} {
			do(target)
		}
		if n := account.begun.Load(); n != 0 {
			t.Errorf("%d requests count as abandoned", n)
		}
		do("/late")
		close(left)
		synctest.Wait()
		if b, e := account.begun.Load(), account.ended.Load(); b != 1 || e != 1 {
			t.Errorf("%d were abandoned, %d of them have ended", b, e)
		}
		do("/slow")
		do("/slow")
		p.last().Close()
		synctest.Wait()
		if b, e := account.begun.Load(), account.ended.Load(); b != 3 || e != 3 {
			t.Errorf("%d were abandoned, %d of them have ended", b, e)
		}
		close(goOn)
	})
}
