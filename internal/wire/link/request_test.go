package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestEveryFieldArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			at, ok := r.Context().Deadline()
			got := fmt.Sprint(r.Method, " ", r.Target, " ", r.Host, " ", r.Key, " ", r.Epoch, " ", r.Client, " ", r.Policy, " ", r.ContentLength, " ", r.Fields.Header(), " ", time.Until(at), ok)
			const want = "PUT /a?b=c host k\x00ey 77 18446744073709551615 [1 0] 0 map[A:[1 3] B:[2]] 3s true"
			if got != want {
				t.Errorf("server got %q, want %q", got, want)
			}
			f := AppendField(nil, "x", "y")
			w.WriteHead(418, 2, f)
			w.Write([]byte("ok"))
		}, Config{})
		f := AppendField(nil, "a", "1")
		f = AppendField(f, "B", "2")
		f = AppendField(f, "A", []byte("3"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		resp, err := p.Do(ctx, &Request{Method: "PUT", Target: "/a?b=c", Host: "host", Key: "k\x00ey", Epoch: 77, Client: math.MaxUint64, Policy: []byte{1, 0}, Fields: f})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if resp.Status != 418 || resp.ContentLength != 2 || resp.Fields.Header().Get("X") != "y" || string(body) != "ok" || err != nil {
			t.Errorf("client got %d, %d, %v, %q, %v", resp.Status, resp.ContentLength, resp.Fields.Header(), body, err)
		}
	})
}

// TestBodies sends bodies of all sizes around the limits in all ways.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, echo, Config{})
		for _, size := range []int{0, 1, inlineBody, inlineBody + 1, maxData, maxData + 1, initialWindow, initialWindow + 1, 3 * initialWindow, 1 << 20} {
			body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
			for name, req := range map[string]*Request{
				"sized":   post(body),
				"chunked": chunked(strings.NewReader(body)),
				"dribble": chunked(iotestOneKiB{strings.NewReader(body)}),
			} {
				got, err := fetch(t.Context(), &p.Client, req)
				if got != body || err != nil {
					t.Errorf("%s, %d bytes: got %d bytes back, %v", name, size, len(got), err)
				}
				<-req.BodyDone()
			}
		}
		if n := p.dials.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// room is a Memory of so many bytes.
type room int

func (r room) Reserve(n int) bool { return n <= int(r) }

// TestKeep: a body that is kept is sent by each attempt, and so is one that there is no room for.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, echo, Config{})
		body := strings.Repeat("0123456789abcdef", initialWindow/16)
		for name, tt := range map[string]struct {
			req  *Request
			room room
			kept int
		}{
			"once":           {post(body), initialWindow, len(body)},
			"no room":        {post(body), 0, 0},
			"some room":      {post(body), firstRead, firstRead},
			"unknown length": {chunked(strings.NewReader(body)), initialWindow, 0},
		} {
			tt.req.Memory = tt.room
			for range 2 {
				whole, err := tt.req.Keep()
				if kept := string(tt.req.AppendKept(nil)); whole != (tt.kept == len(body)) || err != nil || kept != body[:tt.kept] {
					t.Errorf("%s: %v, %v, %d bytes kept, want %d", name, whole, err, len(kept), tt.kept)
				}
			}
			if got, err := fetch(t.Context(), &p.Client, tt.req); got != body || err != nil {
				t.Errorf("%s: got %d bytes back, %v", name, len(got), err)
			}
			<-tt.req.BodyDone()
		}
	})
}

// iotestOneKiB reads at most 1 KiB at a time.
type iotestOneKiB struct{ r io.Reader }

func (r iotestOneKiB) Read(p []byte) (int, error) {
	return r.r.Read(p[:min(len(p), 1<<10)])
}

func TestTrailersBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			io.Copy(w, r.Body)
			w.SetTrailer(r.Body.Trailer())
		}, Config{})
		for _, req := range []*Request{post("abc"), chunked(strings.NewReader("abc"))} {
			req.Trailer = func() Fields { return AppendField(nil, "Sum", "17") }
			resp, err := p.Do(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if got := resp.Body.Trailer().Header().Get("Sum"); string(b) != "abc" || err != nil || got != "17" {
				t.Errorf("got %q, %v, trailer %q", b, err, got)
			}
			resp.Body.Close()
		}
	})
}

func TestNextAndBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) { text(w, "hello") }, Config{})
		resp, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		synctest.Wait()
		if n, last := resp.Body.Buffered(); n != 5 || !last {
			t.Errorf("buffered %d, %v; want 5, true", n, last)
		}
		b, err := resp.Body.Next()
		if string(b) != "hello" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		if _, err := resp.Body.Next(); err != io.EOF {
			t.Errorf("got %v at the end, want io.EOF", err)
		}
	})
}

// TestFlush sees that a part of a body arrives while the handler still runs.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			io.WriteString(w, "one")
			w.Flush()
			<-goOn
			io.WriteString(w, "two")
		}, Config{})
		resp, err := p.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := resp.Body.Next()
		if string(b) != "one" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		close(goOn)
		if rest, err := io.ReadAll(resp.Body); string(rest) != "two" || err != nil {
			t.Errorf("got %q, %v", rest, err)
		}
	})
}

func TestResponseLengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(w *ResponseWriter, r *ServerRequest) {
			switch r.Target {
			case "/short":
				w.WriteHead(200, 5, nil)
				io.WriteString(w, "abc")
			case "/long":
				w.WriteHead(200, 2, nil)
				if _, err := io.WriteString(w, "abc"); !errors.Is(err, ErrContentLength) {
					t.Errorf("writing too much: %v", err)
				}
				io.WriteString(w, "ab")
			case "/nothing":
			case "/twice":
				w.WriteHead(200, -1, nil)
				want(t, w.WriteHead(500, -1, nil), ErrAnswered)
				want(t, w.Refuse(&RefusedError{Reason: Busy}), ErrAnswered)
			case "/info":
				if w.WriteHead(103, -1, nil) == nil {
					t.Error("an informational status was taken for a final one")
				}
			}
		}, Config{})
		if _, err := p.get(t, "/short"); err == nil {
			t.Error("a truncated answer was not noticed")
		}
		for target, body := range map[string]string{"/long": "ab", "/nothing": "", "/twice": "", "/info": ""} {
			if got, err := p.get(t, target); got != body || err != nil {
				t.Errorf("%s: got %q, %v; want %q", target, got, err, body)
			}
		}
	})
}

// TestManyAtOnce mixes many requests of all kinds on one connection.
func TestManyAtOnce(t *testing.T) {
	p := newPair(t, echo, Config{})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, i*i*3)
			req := post(string(body))
			if i%2 == 0 {
				req = chunked(bytes.NewReader(body))
			}
			got, err := fetch(t.Context(), &p.Client, req)
			if got != string(body) || err != nil {
				t.Errorf("request %d: got %d bytes, want %d, %v", i, len(got), len(body), err)
			}
		})
	}
	wg.Wait()
}

// TestLargeUpload streams a large body both ways in little memory.
func TestLargeUpload(t *testing.T) {
	const size = 24 << 20
	p := newPair(t, echo, Config{})
	resp, err := p.Do(t.Context(), chunked(io.LimitReader(zeros{}, size)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	before := heap()
	var most uint64
	var sum int
	for buf := make([]byte, 64<<10); ; {
		n, err := resp.Body.Read(buf)
		if sum += n; sum%(8<<20) < n {
			most = max(most, heap())
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum != size {
		t.Errorf("%d bytes came back, want %d", sum, size)
	}
	if most > before+4<<20 {
		t.Errorf("the heap grew from %d to %d KiB", before>>10, most>>10)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// heap returns the bytes in live objects.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
