package h2

import (
	"errors"
	"io"
	"os"
	"runtime"
	"testing"
)

// Whoever says nothing for too long is cut off, or told.
func TestTimeouts(t *testing.T) {
	t.Run("preface", func(t *testing.T) {
		c := connect(t, &Server{MaxStreams: 1, MaxHeaderBytes: 100, HeadTicks: 10, IdleTicks: 100}, echo)
		c.send([]byte(preface[:10]))
		c.expect("SETTINGS ack=false")
		c.check(9, false)
		select {
		case <-c.done:
			t.Fatal("too early")
		default:
		}
		c.check(1, false)
		<-c.done
	})
	t.Run("acknowledgement", func(t *testing.T) {
		c := connect(t, &Server{MaxStreams: 1, MaxHeaderBytes: 100, HeadTicks: 10, IdleTicks: 100}, echo)
		c.send([]byte(preface), settingsFrame())
		c.expect("SETTINGS ack=false", "SETTINGS ack=true")
		c.settle()
		c.check(10, false)
		c.expect("GOAWAY 0 SETTINGS_TIMEOUT", "closed")
	})
	t.Run("idle", func(t *testing.T) {
		c := greet(t, echo)
		c.settle()
		c.check(testServer.IdleTicks, false)
		c.expect("GOAWAY 0 NO_ERROR", "closed")
	})
	t.Run("idle after a request", func(t *testing.T) {
		c := greet(t, func(s *Stream) { s.Answer(204, nil, nil, true) })
		c.settle()
		c.check(testServer.IdleTicks-1, false)
		c.send(open(1, true, get()))
		c.expect("HEADERS 1 :status=204 end")
		waitFor(func() bool { return c.locked(c.server.quietLocked) }) // the handler has returned, too
		c.check(testServer.IdleTicks-1, false)
		c.settle()
		c.check(2, false)
		c.expect("GOAWAY 1 NO_ERROR", "closed")
	})
	t.Run("head", func(t *testing.T) {
		c := greet(t, echo)
		c.send(raw(framePing, 0, 0, "12345678"), open(1, true, get())[:12])
		c.expect(`PING "12345678" ack=true`)
		waitFor(func() bool { return c.server.late.Load() != 0 })
		c.check(testServer.HeadTicks, false)
		c.expect("closed")
	})
	t.Run("continuation", func(t *testing.T) {
		c := greet(t, echo)
		c.send(raw(frameHeaders, 0, 1, get()))
		waitFor(func() bool { return c.server.late.Load() != 0 })
		c.check(testServer.HeadTicks-1, false)
		c.send(raw(frameContinuation, 0, 1, "")) // no excuse
		c.check(1, false)
		c.expect("closed")
	})
	t.Run("body", func(t *testing.T) {
		got := make(chan error)
		c := greet(t, func(s *Stream) {
			_, err := s.Read(make([]byte, 1))
			got <- err
			s.Answer(408, nil, nil, true)
		})
		c.send(open(1, false, post()))
		c.settle()
		waitFor(func() bool { return c.locked(func() bool { return c.server.streams[1].reading }) })
		c.check(testServer.ClientTicks+1, false)
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		c.expect("HEADERS 1 :status=408 end", "RESET 1 NO_ERROR")
	})
	t.Run("tunnel", func(t *testing.T) {
		got := make(chan error)
		c := greet(t, func(s *Stream) {
			s.Wait()
			_, err := s.Read(make([]byte, 1))
			got <- err
			s.Answer(204, nil, nil, true)
		})
		c.send(open(1, false, post()))
		c.settle()
		waitFor(func() bool { return c.locked(func() bool { return c.server.streams[1].reading }) })
		c.check(2*testServer.ClientTicks, false)
		c.send(data(1, true, "x"))
		if err := <-got; err != nil && err != io.EOF {
			t.Error(err)
		}
		c.expect("HEADERS 1 :status=204 end")
	})
	t.Run("window", func(t *testing.T) {
		got := make(chan error)
		c := greet(t, func(s *Stream) { got <- s.Answer(200, nil, []byte("abc"), true) }, settingInitialWindow, 0)
		c.send(open(1, true, get()))
		c.expect("HEADERS 1 :status=200")
		waitFor(func() bool { return c.locked(func() bool { return c.server.out.blocked == 1 }) })
		c.check(testServer.ClientTicks+1, false)
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		c.expect("RESET 1 CANCEL")
	})
}

// A client that has requests under way is asked for a sign when it has given none,
// and has got nothing, for a while.
func TestSilentClientsArePinged(t *testing.T) {
	server := &Server{MaxStreams: 8, MaxHeaderBytes: 4 << 10, HeadTicks: 10, IdleTicks: 1000, PingTicks: 5}
	begin := func(t *testing.T) (c *client, s *Stream, end func()) {
		streams, release := make(chan *Stream), make(chan struct{})
		c = connect(t, server, func(s *Stream) {
			streams <- s
			<-release
		})
		c.send([]byte(preface), settingsFrame(), raw(frameSettings, flagAck, 0, ""), open(1, true, get()))
		c.expect("SETTINGS ack=false", "SETTINGS ack=true")
		s = <-streams
		c.settle()
		return c, s, func() { close(release) }
	}
	const ping = `PING "keyway  " ack=false`
	t.Run("it is there", func(t *testing.T) {
		c, s, end := begin(t)
		defer end()
		for range 3 {
			c.check(server.PingTicks, false)
			c.expect(ping)
			c.send(raw(framePing, flagAck, 0, "keyway  "))
			c.settle()
			c.check(server.PingTicks-1, false)
		}
		s.Answer(204, nil, nil, true)
		c.expect("HEADERS 1 :status=204 end")
	})
	t.Run("it has gone", func(t *testing.T) {
		c, s, end := begin(t)
		c.check(server.PingTicks, false)
		c.expect(ping)
		c.check(server.PingTicks-1, false)
		if err := s.Context().Err(); err != nil {
			t.Fatalf("too early: %v", err)
		}
		c.check(1, false)
		c.expect("closed")
		<-s.Context().Done()
		end()
	})
	t.Run("it takes the answer", func(t *testing.T) {
		c, s, end := begin(t)
		defer end()
		s.Answer(200, nil, nil, false)
		c.expect("HEADERS 1 :status=200")
		for range 3 {
			c.check(server.PingTicks-1, false)
			s.Write([]byte("more"), false)
			c.expect(`DATA 1 "more"`)
		}
	})
	t.Run("it has no request", func(t *testing.T) {
		c := connect(t, server, echo)
		c.send([]byte(preface), settingsFrame(), raw(frameSettings, flagAck, 0, ""))
		c.expect("SETTINGS ack=false", "SETTINGS ack=true")
		c.settle()
		c.check(10*server.PingTicks, false)
		c.settle() // would see a PING
	})
}

func (c *client) locked(ok func() bool) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return ok()
}

func waitFor(ok func() bool) {
	for !ok() {
		runtime.Gosched()
	}
}

// Whoever leaves finishes what runs.
func TestLeaving(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	c := greet(t, func(s *Stream) {
		entered <- struct{}{}
		<-release
		s.Answer(204, nil, nil, true)
	})
	c.send(open(1, true, get()))
	<-entered
	c.check(1, true)
	c.expect("GOAWAY 2147483647 NO_ERROR")
	c.send(open(3, true, get())) // it was under way
	<-entered
	c.check(leaveTicks, true)
	c.expect("GOAWAY 3 NO_ERROR")
	c.send(open(5, true, get()), data(5, true, "x")) // this one was told
	c.settle()
	close(release)
	if a, b := c.event(), c.event(); len(a) != len(b) || a == b || a != "HEADERS 1 :status=204 end" && b != "HEADERS 1 :status=204 end" {
		t.Errorf("%s, %s", a, b)
	}
	waitFor(func() bool { return c.locked(func() bool { return c.server.running == 0 }) })
	c.check(1, true)
	c.expect("closed")
	select {
	case <-c.done:
		t.Error("it did not wait for the client to read")
	default:
	}
	c.check(lingerTicks, true)
	<-c.done
}

func TestIdleLeaving(t *testing.T) {
	c := greet(t, func(s *Stream) { s.Answer(204, nil, nil, true) })
	c.check(1, true)
	c.expect("GOAWAY 2147483647 NO_ERROR")
	c.send(open(1, true, get())) // it was on its way
	c.expect("HEADERS 1 :status=204 end")
	waitFor(func() bool { return c.locked(c.server.quietLocked) })
	c.check(leaveTicks, true)
	c.expect("GOAWAY 1 NO_ERROR")
	c.check(1, true)
	c.expect("closed")
	c.nc.Close()
	<-c.done
}

// What a handler has begun ends with its stream, and its stream with it.
func TestEnds(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 2)
	wait := func(s *Stream) {
		failed := make(chan struct{})
		s.OnFail(func() { close(failed) })
		close(entered)
		<-failed
		<-s.Context().Done()
		left <- s.Answer(200, nil, nil, true)
	}
	t.Run("reset", func(t *testing.T) {
		entered = make(chan struct{})
		c := greet(t, wait)
		c.send(open(1, true, get()))
		<-entered
		c.send(raw(frameReset, 0, 1, word(8)))
		if err := <-left; err != errReset {
			t.Error(err)
		}
		c.settle() // and there is no answer
	})
	t.Run("close", func(t *testing.T) {
		entered = make(chan struct{})
		c := greet(t, wait)
		c.send(open(1, true, get()))
		<-entered
		c.nc.Close()
		if err := <-left; err != errClosed {
			t.Error(err)
		}
		<-c.done
	})
	t.Run("Close", func(t *testing.T) {
		entered = make(chan struct{})
		c := greet(t, wait)
		c.send(open(1, true, get()))
		<-entered
		c.server.Close()
		<-left
		<-c.done
	})
	t.Run("protocol error", func(t *testing.T) {
		entered = make(chan struct{})
		c := greet(t, wait)
		c.send(open(1, true, get()))
		<-entered
		c.send(open(2, true, get()))
		if err := <-left; err != errClosed {
			t.Error(err)
		}
		c.expect("GOAWAY 1 PROTOCOL_ERROR", "closed")
	})
	t.Run("no answer", func(t *testing.T) {
		c := greet(t, func(*Stream) {})
		c.send(open(1, true, get()))
		c.expect("RESET 1 INTERNAL_ERROR")
	})
	t.Run("half an answer", func(t *testing.T) {
		c := greet(t, func(s *Stream) {
			s.Answer(200, nil, []byte("half"), false)
			s.Reset(InternalError)
			s.Reset(Cancel)
		})
		c.send(open(1, true, get()))
		c.expect("HEADERS 1 :status=200", `DATA 1 "half"`, "RESET 1 INTERNAL_ERROR")
		c.settle()
	})
	t.Run("late OnFail", func(t *testing.T) {
		called := make(chan struct{})
		c := greet(t, func(s *Stream) {
			<-s.Context().Done()
			s.OnFail(func() { close(called) })
		})
		c.send(open(1, true, get()), raw(frameReset, 0, 1, word(8)))
		<-called
	})
}
