package link

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// serveTCP serves h on a loopback port and returns a client of it.
func serveTCP(tb testing.TB, h Handler) *Client {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Handler: h}
	go s.Serve(ln)
	c := &Client{Addr: ln.Addr().String()}
	tb.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c
}

func benchmarkDo(b *testing.B, h Handler, size int64) {
	c := serveTCP(b, h)
	fields := AppendField(nil, "Accept", "*/*")
	fields = AppendField(fields, "User-Agent", "bench/1.0 (linux; amd64)")
	fields = AppendField(fields, "X-Request-Id", "0af7651916cd43dd8448eb211c80319c")
	b.SetBytes(size)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := c.Do(b.Context(), &Request{Method: "GET", Target: "/orders?id=4711", Host: "orders.example", Key: "4711", Fields: fields})
			if err != nil {
				b.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
				b.Errorf("%d bytes, %v", n, err)
				return
			}
			resp.Body.Close()
		}
	})
}

func BenchmarkDo(b *testing.B) {
	for _, size := range []int{100, 10 << 10, 1 << 20} {
		answer := make([]byte, size)
		name := map[int]string{100: "100B", 10 << 10: "10KiB", 1 << 20: "1MiB"}[size]
		b.Run("plain/"+name, func(b *testing.B) {
			benchmarkDo(b, HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
				w.WriteHead(200, int64(len(answer)), nil)
				w.Write(answer)
			}), int64(size))
		})
		b.Run("http/"+name, func(b *testing.B) {
			benchmarkDo(b, HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Write(answer)
			})), int64(size))
		})
	}
}

// TestAllocations bounds what one request costs the heap, both ends together.
func TestAllocations(t *testing.T) {
	answer := make([]byte, 100)
	for name, tc := range map[string]struct {
		handler Handler
		most    float64
	}{
		"plain": {HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
			w.WriteHead(200, int64(len(answer)), nil)
			w.Write(answer)
		}), 10},
		"http": {HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(answer) })), 18},
	} {
		c := serveTCP(t, tc.handler)
		got := testing.AllocsPerRun(500, func() {
			resp, err := c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h", Key: "k", Fields: Fields("\x01A\x01b")})
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
		if got > tc.most {
			t.Errorf("%s: %v allocations for a request, want at most %v", name, got, tc.most)
		}
	}
}
