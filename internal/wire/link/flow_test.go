package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowReaderBlocksNobody leaves an answer unread and goes on with others.
func TestSlowReaderBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrote := 0
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/small" {
				text(w, "ok")
				return
			}
			var err error
			for err == nil {
				var n int
				n, err = w.Write(make([]byte, 10<<10))
				wrote += n
			}
		}, Config{})
		slow, err := p.Do(t.Context(), post(""))
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Body.Close()
		synctest.Wait()
		if n, _ := slow.Body.Buffered(); n > initialWindow || wrote > initialWindow+10<<10 {
			t.Errorf("%d bytes buffered, %d written", n, wrote)
		}
		for range 10 {
			if got, err := p.get(t, "/small"); got != "ok" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		io.CopyN(io.Discard, slow.Body, initialWindow/2)
		synctest.Wait()
		if n, _ := slow.Body.Buffered(); n != grownWindow {
			t.Errorf("%d bytes buffered once the reader had begun, want %d", n, grownWindow)
		}
	})
}

// A stream that is silent keeps no buffer, however large its last piece was.
func TestSilentStreamsKeepNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, _ *ServerRequest) {
			w.Write(make([]byte, grownWindow))
			w.Flush()
			<-goOn
		}, Config{})
		res, err := p.Do(t.Context(), post(""))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		over := make(chan error)
		go func() {
			var err error
			for err == nil {
				_, err = res.Body.Next()
			}
			over <- err
		}()
		synctest.Wait()
		res.Body.mu.Lock()
		if res.Body.lent != nil {
			t.Errorf("a buffer of %d bytes is lent", cap(res.Body.lent.b))
		}
		res.Body.mu.Unlock()
		close(goOn)
		if err := <-over; err != io.EOF {
			t.Error(err)
		}
	})
}

// TestLargePieces: a reader that is behind gets several frames of a large body as one piece.
func TestLargePieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i % 251)
		}
		p := newPair(t, func(w *ResponseWriter, _ *ServerRequest) { w.Write(body) }, Config{})
		res, err := p.Do(t.Context(), post(""))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		largest, got := 0, []byte(nil)
		for {
			synctest.Wait() // all that the window allows has come
			piece, err := res.Body.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got, largest = append(got, piece...), max(largest, len(piece))
		}
		if !bytes.Equal(got, body) || largest != maxBuffer {
			t.Errorf("%d bytes, the largest piece has %d", len(got), largest)
		}
	})
}

// TestSlowHandlerBlocksNobody leaves an upload unread and goes on with others.
func TestSlowHandlerBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.ContentLength == 0 {
				text(w, "ok")
				return
			}
			<-goOn
			n, _ := io.Copy(io.Discard, r.Body)
			if n != 1<<20 {
				t.Errorf("%d bytes came in", n)
			}
		}, Config{})
		source := &counter{r: strings.NewReader(strings.Repeat("x", 1<<20))}
		slow := make(chan error)
		go func() {
			_, err := fetch(t.Context(), &p.Client, chunked(source))
			slow <- err
		}()
		synctest.Wait()
		if source.n != initialWindow {
			t.Errorf("%d bytes read of the body, want the initial window", source.n)
		}
		for range 10 {
			if got, err := p.get(t, "/"); got != "ok" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		close(goOn)
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestTooManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { <-goOn }, Config{MaxStreams: 3})
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := p.get(t, "/")
				done <- err
			}()
		}
		synctest.Wait()
		_, err := p.get(t, "/")
		want(t, err, ErrTooManyStreams)
		want(t, err, ErrNotStarted)
		close(goOn)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if _, err := p.get(t, "/"); err != nil {
			t.Error(err)
		}
	})
}

// TestServerRefusesTooMany: cancelled requests count for as long as their
// handlers run, so a client that cancels and asks anew gains nothing.
func TestServerRefusesTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		s := &Server{Config: Config{MaxStreams: 2}, Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) { <-goOn })}
		near, far := net.Pipe()
		served := make(chan error)
		go func() { served <- s.ServeConn(far) }()
		peer := newFakePeer(near)
		peer.greet(t)
		for id := uint64(1); id <= 2; id++ {
			peer.write(t, requestFrame(id, plainHead("GET"), true))
			peer.write(t, appendControl(nil, kindReset, id, uint64(CodeCancel)))
		}
		peer.write(t, requestFrame(3, plainHead("GET"), true))
		h, b := peer.frame(t)
		refusal, err := decodeRefusal(b)
		if h.kind != kindRefused || h.stream != 3 || err != nil || refusal.Reason != Busy {
			t.Errorf("%v for stream %d, %v, %v", h.kind, h.stream, refusal, err)
		}
		close(goOn)
		for ended := uint64(0); ended != 1+2; {
			h, _ := peer.frame(t)
			if h.kind != kindReset || h.stream < 1 || h.stream > 2 {
				t.Fatalf("%v for stream %d, want the ends of those that were cancelled", h.kind, h.stream)
			}
			ended += h.stream
		}
		peer.write(t, requestFrame(4, plainHead("GET"), true))
		if h, _ := peer.frame(t); h.kind != kindResponse || h.stream != 4 || !h.end {
			t.Errorf("%v for stream %d", h.kind, h.stream)
		}
		near.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestHeaderLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			switch r.Target {
			case "/head":
				want(t, w.WriteHead(200, 0, AppendField(nil, "A", strings.Repeat("x", 1100))), ErrAnswerHeaderTooLarge)
			case "/trailer":
				w.SetTrailer(AppendField(nil, "A", strings.Repeat("x", 1100)))
				io.WriteString(w, "x")
			}
		}, Config{MaxHeaderBytes: 1 << 10})
		req := post("")
		req.Fields = AppendField(nil, "A", strings.Repeat("x", 1100))
		_, err := p.Do(t.Context(), req)
		want(t, err, ErrHeaderTooLarge)
		want(t, err, ErrNotStarted)
		for _, target := range []string{"/head", "/trailer"} {
			_, err := p.get(t, target)
			if _, ok := errors.AsType[*ResetError](err); !ok {
				t.Errorf("%s: %v", target, err)
			}
		}
		upload := chunked(strings.NewReader("abc"))
		upload.Trailer = func() Fields { return AppendField(nil, "A", strings.Repeat("x", 1100)) }
		_, err = fetch(t.Context(), &p.Client, upload)
		if err != nil {
			want(t, err, ErrHeaderTooLarge)
		}
		if _, err := p.get(t, "/"); err != nil || p.dials.Load() != 1 {
			t.Errorf("the connection did not survive: %v", err)
		}
	})
}

// TestStreamErrors breaks the protocol on one stream with what may come from users,
// which must not cost more than that stream.
func TestStreamErrors(t *testing.T) {
	for name, frames := range map[string][]byte{
		"malformed head":    appendFrame(nil, header{kind: kindRequest, end: true, stream: 1}, []byte{1, 2, 3}),
		"trailers no token": append(requestFrame(1, plainHead("PUT"), false), appendFrame(nil, header{kind: kindTrailers, end: true, stream: 1}, AppendField(nil, "a b", ""))...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
					if r.Method == "GET" {
						return
					}
					<-r.Context().Done()
				})}
				near, far := net.Pipe()
				served := make(chan error)
				go func() { served <- s.ServeConn(far) }()
				peer := newFakePeer(near)
				peer.greet(t)
				go near.Write(frames)
				h, b := peer.frame(t)
				code, _ := binary.Uvarint(b)
				if h.kind != kindReset || h.stream != 1 || Code(code) != CodeMalformed {
					t.Errorf("got %v on stream %d with %d, want a reset", h.kind, h.stream, code)
				}
				synctest.Wait()
				peer.write(t, requestFrame(2, plainHead("GET"), true))
				if h, _ := peer.frame(t); h.kind != kindResponse || h.stream != 2 {
					t.Errorf("%v on stream %d after it", h.kind, h.stream)
				}
				near.Close()
				<-served
			})
		})
	}
}

// dataFrames returns n full data frames.
func dataFrames(id uint64, n int) []byte {
	var b []byte
	for range n {
		b = appendFrame(b, header{kind: kindData, stream: id}, make([]byte, maxData))
	}
	return b
}

// TestConnectionErrors breaks the protocol in ways that cost the connection.
func TestConnectionErrors(t *testing.T) {
	for name, frames := range map[string][]byte{
		"unknown kind":       appendFrame(nil, header{kind: 99}, nil),
		"stream reused":      append(requestFrame(5, plainHead("GET"), true), requestFrame(5, plainHead("GET"), true)...),
		"data before open":   dataFrames(7, 1),
		"head too large":     appendFrame(nil, header{kind: kindRequest, end: true, stream: 1}, make([]byte, 100<<10)),
		"data too large":     append(requestFrame(1, plainHead("PUT"), false), appendFrame(nil, header{kind: kindData, stream: 1}, make([]byte, maxData+1))...),
		"window overrun":     append(requestFrame(1, plainHead("PUT"), false), dataFrames(1, initialWindow/maxData+1)...),
		"credit overflow":    append(requestFrame(1, plainHead("GET"), false), appendControl(nil, kindWindow, 1, 1<<40)...),
		"trailers too large": append(requestFrame(1, plainHead("PUT"), false), appendFrame(nil, header{kind: kindTrailers, end: true, stream: 1}, make([]byte, 100<<10))...),
		"response to server": appendFrame(nil, header{kind: kindResponse, stream: 1}, nil),
		"window too long":    appendFrame(nil, header{kind: kindWindow, stream: 1}, make([]byte, 11)),
		"window malformed":   appendFrame(nil, header{kind: kindWindow, stream: 1}, []byte{0x80}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Config: logless(), Handler: HandlerFunc(func(w *ResponseWriter, r *ServerRequest) { <-r.Context().Done() })}
				near, far := net.Pipe()
				defer near.Close()
				served := make(chan error)
				go func() { served <- s.ServeConn(far) }()
				peer := newFakePeer(near)
				peer.greet(t)
				go near.Write(frames)
				go io.Copy(io.Discard, near)
				want(t, <-served, ErrProtocol)
			})
		})
	}
}

// TestStalledPeer: both ends find out that nothing comes through any more.
func TestStalledPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			<-r.Context().Done()
			close(ended)
		}, Config{})
		failed := make(chan error)
		go func() {
			_, err := p.get(t, "/")
			failed <- err
		}()
		time.Sleep(time.Minute) // an idle but healthy connection stays
		if p.dials.Load() != 1 {
			t.Error("the connection did not last")
		}
		start := time.Now()
		p.last().hole.Store(true)
		time.Sleep(7 * time.Second)
		_, err := p.get(t, "/")
		want(t, err, ErrNotStarted)
		want(t, err, ErrStalled)
		err = <-failed
		want(t, err, ErrLost)
		want(t, err, ErrStalled)
		if d := time.Since(start); d > 33*time.Second || d < 30*time.Second {
			t.Errorf("given up after %v", d)
		}
		<-ended
	})
}

// TestTrapRepeatableOnStalledPeer: what its caller repeats does not wait for a peer that may come back, and what may not
// be repeated does.
func TestTrapRepeatableOnStalledPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			<-goOn
			text(w, "ok")
		}, Config{})
		type end struct {
			err  error
			took time.Duration
		}
		start, once, again := time.Now(), make(chan end, 1), make(chan end, 1)
		for ended, repeatable := range map[chan end]bool{once: false, again: true} {
			go func() {
				_, err := fetch(t.Context(), &p.Client, &Request{Method: "GET", Target: "/", Host: "h", Repeatable: repeatable})
				ended <- end{err, time.Since(start)}
			}()
		}
		synctest.Wait()
		hole := p.last().hole
		hole.Store(true)
		e := <-again
		want(t, e.err, ErrLost)
		want(t, e.err, ErrStalled)
		if errors.Is(e.err, ErrNotStarted) || e.took > 7*time.Second {
			t.Errorf("after %v: %v", e.took, e.err)
		}
		hole.Store(false)
		close(goOn)
		if e := <-once; e.err != nil {
			t.Errorf("the other request: %v", e.err)
		}
	})
}

// TestStalledConnectionIsReplaced: if only the connection was lost on its way,
// another one takes the new requests, while the old one may still come back
// with its answers.
func TestStalledConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			if r.Target == "/slow" {
				<-goOn
			}
			text(w, "ok")
		}, Config{})
		slow := make(chan error)
		go func() {
			_, err := p.get(t, "/slow")
			slow <- err
		}()
		synctest.Wait()
		hole := p.last().hole
		hole.Store(true)
		time.Sleep(7 * time.Second)
		_, err := p.get(t, "/")
		want(t, err, ErrStalled)
		synctest.Wait()
		if got, err := p.get(t, "/"); got != "ok" || err != nil || p.dials.Load() != 2 {
			t.Errorf("got %q, %v over connection %d", got, err, p.dials.Load())
		}
		hole.Store(false)
		close(goOn)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(p.conns); n != 2 || len(p.Client.conns) != 1 {
			t.Errorf("%d connections were made, %d are left", n, len(p.Client.conns))
		}
	})
}

// TestPeerStopsReading: a peer that takes nothing any more is found out even
// while it goes on sending.
func TestPeerStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		peer := newFakePeer(far)
		c := &Client{Dial: func(context.Context) (net.Conn, error) { return near, nil }}
		defer c.Close()
		sender := make(chan struct{})
		go func() {
			defer close(sender)
			peer.answerHello(t)
			peer.frame(t) // the proof
			for {
				if _, err := far.Write(appendFrame(nil, header{kind: kindPong}, nil)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		start := time.Now()
		_, err := c.Do(t.Context(), post(""))
		want(t, err, ErrNotStarted) // it was stuck on this side; the next dial failed
		if d := time.Since(start); d > 33*time.Second || d < 30*time.Second {
			t.Errorf("given up after %v", d)
		}
		<-sender
	})
}
