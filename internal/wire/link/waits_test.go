package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitsAreTold: the client is told of a wait that lasts, and of its end before
// the request begins; of a short wait it is told nothing.
func TestWaitsAreTold(t *testing.T) {
	refuse := func(w *ResponseWriter) { w.Refuse(&RefusedError{Reason: Unavailable}) }
	answer := func(w *ResponseWriter) { w.WriteHead(200, 0, nil) }
	for name, tc := range map[string]struct {
		waits  []time.Duration
		begins bool
		end    func(*ResponseWriter)
		want   string
	}{
		"no wait":                   {nil, true, answer, "response"},
		"a short wait":              {[]time.Duration{waitTick / 2}, true, answer, "response"},
		"a wait that lasts":         {[]time.Duration{3 * waitTick}, true, answer, "waiting begun response"},
		"refused":                   {[]time.Duration{3 * waitTick}, false, refuse, "waiting refused"},
		"refused after its begin":   {[]time.Duration{3 * waitTick}, true, refuse, "waiting begun refused"},
		"answered without a begin":  {[]time.Duration{3 * waitTick}, false, answer, "waiting response"},
		"another wait later":        {[]time.Duration{3 * waitTick, 3 * waitTick}, true, answer, "waiting begun response"},
		"a short and then another":  {[]time.Duration{waitTick / 2, 3 * waitTick}, true, answer, "response"},
		"one that ends at the tick": {[]time.Duration{2 * waitTick}, true, answer, "response"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
					for _, d := range tc.waits {
						if !r.BeginWait() {
							t.Error("the wait is not allowed")
						}
						time.Sleep(d - time.Nanosecond)
						if tc.begins {
							if err := r.Begin(); err != nil {
								t.Error(err)
							}
						}
						r.EndWait()
					}
					tc.end(w)
				})}
				near, far := net.Pipe()
				defer near.Close()
				go s.ServeConn(far)
				peer := newFakePeer(near)
				peer.greet(t)
				peer.write(t, requestFrame(1, plainHead("GET"), true))
				var got []string
				for range strings.FieldsSeq(tc.want) {
					h, b := peer.frame(t)
					if h.stream != 1 || (h.kind == kindWaiting || h.kind == kindBegun) && (h.end || len(b) > 0) {
						t.Errorf("%v frame %+v with %d bytes", h.kind, h, len(b))
					}
					got = append(got, h.kind.String())
				}
				if got := strings.Join(got, " "); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			})
		})
	}
}

// TestBeginWaitsForTheKernel: a request whose client was told that it waits begins
// when the kernel has taken what says otherwise, and not if that takes long; others
// on the connection are then told at once.
func TestBeginWaitsForTheKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 3
		begin, result := make(chan struct{}), make(chan error, waiters)
		s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
			r.BeginWait()
			defer r.EndWait()
			<-begin
			err := r.Begin()
			result <- err
			if err != nil {
				w.Refuse(&RefusedError{Reason: Unavailable})
			}
		})}
		near, far := net.Pipe()
		defer near.Close()
		go s.ServeConn(far)
		peer := newFakePeer(near)
		peer.greet(t)
		for i := range waiters {
			peer.write(t, requestFrame(uint64(i+1), plainHead("GET"), true))
		}
		for range waiters {
			if h, _ := peer.frame(t); h.kind != kindWaiting {
				t.Errorf("%v frame", h.kind)
			}
		}
		for i := range waiters - 1 {
			start := time.Now()
			begin <- struct{}{}
			err := <-result
			if d := time.Since(start); err == nil || i == 0 && d != flushPatience || i > 0 && d != 0 {
				t.Errorf("%v after %v", err, d)
			}
		}
		frames := map[kind]int{}
		for range 4 {
			h, _ := peer.frame(t)
			frames[h.kind]++
		}
		if frames[kindBegun] != 2 || frames[kindRefused] != 2 {
			t.Errorf("%v, want begun and refused of two", frames)
		}
		begin <- struct{}{}
		synctest.Wait()
		if len(result) > 0 {
			t.Error("it begins although the client has not been told")
		}
		if h, _ := peer.frame(t); h.kind != kindBegun {
			t.Errorf("%v frame", h.kind)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		peer.frame(t)
	})
}

// TestBeginAfterTheEnd: what has waited does not begin when the connection has ended.
func TestBeginAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			r.BeginWait()
			defer r.EndWait()
			<-r.Context().Done()
			result <- r.Begin()
		}, Config{})
		go p.get(t, "/")
		time.Sleep(10 * waitTick)
		p.last().Close()
		if err := <-result; err == nil {
			t.Error("it may begin")
		}
	})
}

// serverFrame returns a frame of a server on stream 1, by a letter.
func serverFrame(letter rune) []byte {
	interim, final := responseHead{status: 103, length: -1}, responseHead{status: 200, length: -1}
	switch letter {
	case 'w':
		return appendFrame(nil, header{kind: kindWaiting, stream: 1}, nil)
	case 'b':
		return appendFrame(nil, header{kind: kindBegun, stream: 1}, nil)
	case 'i':
		return appendFrame(nil, header{kind: kindResponse, stream: 1}, interim.append(nil))
	case 'h':
		return appendFrame(nil, header{kind: kindResponse, stream: 1}, final.append(nil))
	case 'r':
		return appendFrame(nil, header{kind: kindRefused, stream: 1, end: true}, appendRefusal(nil, &RefusedError{Reason: Unavailable}))
	case 'c':
		return appendControl(nil, kindReset, 1, uint64(CodeAborted))
	case 'g':
		return appendControl(nil, kindGoAway, 0, 1)
	}
	panic(letter)
}

// outcomeAfter is what a client makes of frames after which the connection ends, by
// docs/link.md: n not started, u unknown, a answered, p protocol.
func outcomeAfter(frames string) (outcome byte) {
	told := byte('u')
	for _, f := range frames {
		switch {
		case f == 'g':
		case f == 'c':
			return 'u'
		case f == 'h':
			return 'a'
		case f == 'r' && told == 'i':
			return 'p'
		case f == 'r':
			return 'n'
		case f == 'i':
			told = 'i'
		case f == 'w' && told == 'u':
			told = 'w'
		case f == 'b' && told == 'w':
			told = 'b'
		default:
			return 'p'
		}
	}
	if told == 'w' {
		return 'n'
	}
	return 'u'
}

// TestOutcomes explores all sequences of up to four frames of a server that then
// ends.
func TestOutcomes(t *testing.T) {
	const letters = "wbihrcg"
	var sequences []string
	for from, to := 0, 1; to <= 1+7+49+343; {
		if from == 0 {
			sequences = append(sequences, "")
		}
		for _, s := range sequences[from:to] {
			for _, l := range letters {
				sequences = append(sequences, s+string(l))
			}
		}
		from, to = to, len(sequences)
	}
	counts := map[byte]int{}
	for _, s := range sequences {
		want := outcomeAfter(s)
		counts[want]++
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			c := oneConn(near)
			defer c.Close()
			peer := newFakePeer(far)
			go func() {
				peer.handshake(t)
				peer.frame(t)
				for _, l := range s {
					if _, err := far.Write(serverFrame(l)); err != nil {
						break // the client has what it needs
					}
				}
				go io.Copy(io.Discard, far)
				synctest.Wait()
				far.Close()
			}()
			resp, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
			got := byte('u')
			switch {
			case err == nil:
				got = 'a'
				resp.Body.Close()
			case errors.Is(err, ErrNotStarted):
				got = 'n'
			case errors.Is(err, ErrProtocol):
				got = 'p'
			}
			if got != want {
				t.Errorf("after %q: %c, want %c (%v)", s, got, want, err)
			}
		})
	}
	if len(sequences) != 2801 || counts['n'] == 0 || counts['u'] == 0 || counts['a'] == 0 || counts['p'] == 0 {
		t.Errorf("%d sequences, %v", len(sequences), counts)
	}
}

// oneConn returns a client that can make one connection.
func oneConn(nc net.Conn) *Client {
	var used atomic.Bool
	return &Client{Config: logless(), Dial: func(context.Context) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("no route")
		}
		return nc, nil
	}}
}

// seenFrom is a connection whose end has another address than the server sees, and
// whose writes fail as after a reset once broken is closed.
type seenFrom struct {
	net.Conn
	addr   string
	broken chan struct{}
}

func (c seenFrom) Write(p []byte) (int, error) {
	select {
	case <-c.broken:
		return 0, syscall.ECONNRESET
	default:
		return c.Conn.Write(p)
	}
}

func (c seenFrom) LocalAddr() net.Addr { return &net.UnixAddr{Name: c.addr} }

// TestOnlyTheServersEndProves: a request that waits has not begun if the server's end
// of its stream is seen, and nothing is known of it after any other end.
func TestOnlyTheServersEndProves(t *testing.T) {
	for name, tc := range map[string]struct {
		addr string
		end  func(c *Client, far net.Conn, broken chan<- struct{})
		want error
	}{
		"server closes": {"pipe", func(_ *Client, far net.Conn, _ chan<- struct{}) { far.Close() }, ErrNotStarted},
		"in the midst of frame": {"pipe", func(_ *Client, far net.Conn, _ chan<- struct{}) {
			far.Write([]byte{0, 0})
			far.Close()
		}, ErrNotStarted},
		"a proxy closes": {"elsewhere", func(_ *Client, far net.Conn, _ chan<- struct{}) { far.Close() }, ErrLost},
		"client closes":  {"pipe", func(c *Client, _ net.Conn, _ chan<- struct{}) { c.Close() }, ErrLost},
		"silence":        {"pipe", func(*Client, net.Conn, chan<- struct{}) {}, ErrLost},
		"garbage": {"pipe", func(_ *Client, far net.Conn, _ chan<- struct{}) {
			far.Write(make([]byte, headerLen))
		}, ErrLost},
		"the writer is told of a reset": {"pipe", func(_ *Client, far net.Conn, broken chan<- struct{}) {
			close(broken)
			time.Sleep(2*time.Second + readOn/2) // the client pings after two ticks
			far.Close()
		}, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				broken := make(chan struct{})
				c := oneConn(seenFrom{near, tc.addr, broken})
				defer c.Close()
				peer := newFakePeer(far)
				go func() {
					peer.handshake(t)
					peer.frame(t)
					go io.Copy(io.Discard, far)
					peer.write(t, serverFrame('w'))
					tc.end(c, far, broken)
				}()
				_, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
				want(t, err, tc.want)
				if tc.want == ErrLost {
					wantNot(t, err, ErrNotStarted)
				}
			})
		})
	}
}

// TestCrowdThatWaitedIsSentAgain: when a worker dies for whose key a crowd waits,
// one request may have run and all others have not; they go to another worker with
// their bodies, and each runs once.
func TestCrowdThatWaitedIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd = 200
		var key sync.Mutex
		key.Lock()
		ran := make([]atomic.Int32, crowd)
		run := func(r *ServerRequest) {
			var n int
			fmt.Sscanf(r.Target, "/%d", &n)
			ran[n].Add(1)
		}
		die := make(chan struct{})
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		dying := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			r.BeginWait()
			defer r.EndWait()
			select {
			case <-turn:
			case <-r.Context().Done():
				return
			}
			if r.Begin() != nil {
				return
			}
			run(r)
			<-die
		}, Config{})
		living := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			run(r)
			io.Copy(w, r.Body)
		}, Config{})
		var lost atomic.Int32
		var wg sync.WaitGroup
		for i := range crowd {
			wg.Go(func() {
				req := post(strings.Repeat("x", i*1000))
				req.Target = fmt.Sprintf("/%d", i)
				_, err := dying.Do(t.Context(), req)
				if !errors.Is(err, ErrNotStarted) {
					want(t, err, ErrLost)
					lost.Add(1)
					return
				}
				if got, err := fetch(t.Context(), &living.Client, req); err != nil || len(got) != i*1000 {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		time.Sleep(time.Second)
		dying.Server.Close()
		close(die)
		wg.Wait()
		if lost.Load() != 1 {
			t.Errorf("%d requests are lost, want 1", lost.Load())
		}
		for i := range ran {
			if n := ran[i].Load(); n != 1 {
				t.Errorf("request %d ran %d times", i, n)
			}
		}
	})
}
