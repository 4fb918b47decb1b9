package router_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// timedApp answers by path, and notes when it last worked for somebody else than the
// good client, and for how long.
type timedApp struct {
	began, ended atomic.Int64 // in Unix nanoseconds
}

const (
	workTime   = 20 * time.Millisecond  // of a request that is left
	turnTime   = time.Millisecond       // of a request of the flood
	appTimeout = 100 * time.Millisecond // of the worker, for a silent app
)

func (a *timedApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		return
	}
	a.began.Store(time.Now().UnixNano())
	defer func() { a.ended.Store(time.Now().UnixNano()) }()
	switch r.URL.Path {
	case "/large":
		for range largeBody >> 16 {
			rw.Write(make([]byte, 1<<16))
		}
	case "/silent":
		<-r.Context().Done()
	case "/work":
		time.Sleep(workTime)
	case "/turn":
		time.Sleep(turnTime)
	}
}

// abuseBench is what a bad client does to a good one, once.
type abuseBench struct {
	*site.Front
	b         *testing.B
	app       *timedApp
	worker    *site.Worker
	bad, good *http.Client
}

func (a *abuseBench) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	r := kit.Must(http.NewRequestWithContext(ctx, method, a.URL+path, body))
	r.Header.Set("X-Key", "k")
	return r
}

// do sends a request of the bad client, and reads the answer.
func (a *abuseBench) do(ctx context.Context, path string) {
	if res, err := a.bad.Do(a.request(ctx, "GET", path, nil)); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// answered returns how long the good client waits for its answer.
func (a *abuseBench) answered() (began time.Time, took time.Duration) {
	began = time.Now()
	res := kit.Must(a.good.Do(a.request(a.b.Context(), "GET", "/", nil)))
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		a.b.Fatal(res.Status)
	}
	return began, time.Since(began)
}

// afterApp returns how long the good client waits from when the app has ended its work
// for the bad one, and how long that has taken.
func (a *abuseBench) afterApp(start func()) (own, extra time.Duration) {
	a.app.began.Store(0)
	go start()
	kit.Eventually(a.b, "the app works", func() bool { return a.app.began.Load() > 0 })
	began, took := a.answered()
	ended := time.Unix(0, a.app.ended.Load())
	own = ended.Sub(time.Unix(0, a.app.began.Load()))
	return own, began.Add(took).Sub(slices.MaxFunc([]time.Time{ended, began}, time.Time.Compare))
}

// BenchmarkAbuse is how much later a client is answered because of what another one does
// with its key: extra is the time beyond what the app itself has worked, own, of which
// the good client's own turn is nothing. Run it with -benchtime 20x.
func BenchmarkAbuse(b *testing.B) {
	for _, bench := range []struct {
		name string
		run  func(*abuseBench) (own, extra time.Duration)
	}{
		{"nothing", func(a *abuseBench) (own, extra time.Duration) {
			_, extra = a.answered()
			return 0, extra
		}},
		{"slow upload", func(a *abuseBench) (own, extra time.Duration) {
			conn := kit.Must(net.Dial("tcp", a.Listener.Addr().String()))
			defer conn.Close()
			io.WriteString(conn, "POST /work HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 500))
			_, extra = a.answered()
			return 0, extra
		}},
		{"fast reader of 20 MB", func(a *abuseBench) (own, extra time.Duration) {
			return a.afterApp(func() { a.do(a.b.Context(), "/large") })
		}},
		{"slow reader of 20 MB", func(a *abuseBench) (own, extra time.Duration) {
			ctx, stop := context.WithCancel(a.b.Context())
			defer stop()
			return a.afterApp(func() {
				if res, err := a.bad.Do(a.request(ctx, "GET", "/large", nil)); err == nil {
					<-ctx.Done()
					res.Body.Close()
				}
			})
		}},
		{"silent app", func(a *abuseBench) (own, extra time.Duration) {
			return a.afterApp(func() { a.do(a.b.Context(), "/silent") })
		}},
		{"request that is left", func(a *abuseBench) (own, extra time.Duration) {
			ctx, leave := context.WithCancel(a.b.Context())
			defer leave()
			return a.afterApp(func() {
				time.AfterFunc(workTime/4, leave)
				a.do(ctx, "/work")
			})
		}},
		{"flood", func(a *abuseBench) (own, extra time.Duration) {
			var wg sync.WaitGroup
			defer wg.Wait()
			for range 200 {
				wg.Go(func() { a.do(a.b.Context(), "/turn") })
			}
			kit.Eventually(a.b, "they wait", func() bool { return a.worker.Queued("k") > 150 })
			_, took := a.answered()
			return 2 * turnTime, took - 2*turnTime // of who has the key, and of who is next
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			app := new(timedApp)
			s, w := site.InFrontOf(b, site.Serve(b, app).URL, func(cfg *worker.Config) {
				if bench.name == "silent app" {
					cfg.Timeout = appTimeout
				}
			})
			bad := &http.Transport{MaxIdleConnsPerHost: 200, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
			b.Cleanup(bad.CloseIdleConnections)
			a := &abuseBench{s, b, app, w, &http.Client{Transport: bad}, s.HTTP}
			a.answered()
			var owns, extras []time.Duration
			for b.Loop() {
				own, extra := bench.run(a)
				owns, extras = append(owns, own), append(extras, extra)
			}
			slices.Sort(owns)
			slices.Sort(extras)
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(owns[len(owns)/2]), "own-ms")
			b.ReportMetric(ms(extras[len(extras)/2]), "extra-ms")
			b.ReportMetric(ms(extras[len(extras)-1]), "extra-max-ms")
		})
	}
}
