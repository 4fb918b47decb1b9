//go:build linux

package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers requests with h until the test ends.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func TestClosedLoop(t *testing.T) {
	var writes, began, ended atomic.Int64
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			writes.Add(1)
		}
		if r.Header.Get(HeaderKey) == "" || r.URL.Path != "/x" {
			t.Errorf("a request for %s of key %q", r.URL, r.Header.Get(HeaderKey))
		}
	})
	r, err := Run(t.Context(), Config{
		Addr: addr, Clients: 4, Mix: Mix{Keys: 10, Method: "POST", Path: "/x"}, WarmUp: 200 * time.Millisecond, Time: time.Second,
		Begin: func() { began.Add(1) }, End: func() { ended.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered == 0 || r.Failed != 0 || r.Total <= r.Answered || r.Latency.TotalCount() != r.Answered || writes.Load() < r.Total {
		t.Errorf("%+v, %d writes", r, writes.Load())
	}
	var sum, points int64
	for _, n := range r.Clients {
		sum += n
	}
	for _, p := range r.Series {
		points += p.Count
	}
	if sum != r.Answered || points != r.Answered {
		t.Errorf("%d answers, by clients %d, by points %d", r.Answered, sum, points)
	}
	if began.Load() != 1 || ended.Load() != 1 || r.Own <= 0 || r.Time < time.Second {
		t.Errorf("began %d, ended %d, own CPU %v, time %v", began.Load(), ended.Load(), r.Own, r.Time)
	}
}

// TestOpenLoopCountsWaiting: requests that are due while the server stands
// still count from when they were due, though no client was free to send them.
func TestOpenLoopCountsWaiting(t *testing.T) {
	const rate, still = 1000, 400 * time.Millisecond
	moves := make(chan struct{})
	addr := serve(t, func(http.ResponseWriter, *http.Request) { <-moves })
	r, err := Run(t.Context(), Config{Addr: addr, Clients: 2, Rate: rate, Mix: Mix{Keys: 10, Path: "/"}, Time: still, End: func() { close(moves) }})
	if err != nil {
		t.Fatal(err)
	}
	if n, want := float64(r.Latency.TotalCount()), rate*r.Time.Seconds(); n < 0.8*want || n > 1.2*want {
		t.Errorf("%.0f requests in %v, of about %.0f", n, r.Time, want)
	}
	if p50 := time.Duration(r.Latency.ValueAtQuantile(50)); p50 < still/3 {
		t.Errorf("p50 is %v, though the server stood still for %v", p50, r.Time)
	}
}

// TestOpenLoopCountsUnanswered: what is never answered is not left out.
func TestOpenLoopCountsUnanswered(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	addr := serve(t, func(http.ResponseWriter, *http.Request) { <-stop })
	r, err := Run(t.Context(), Config{Addr: addr, Clients: 2, Rate: 500, Mix: Mix{Keys: 10, Path: "/"}, Time: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed < 25 || r.Failed != r.Latency.TotalCount() || time.Duration(r.Latency.Min()) < drainTime*9/10 {
		t.Errorf("failed %d of %d, the quickest after %v: %v", r.Failed, r.Latency.TotalCount(), time.Duration(r.Latency.Min()), r.Failures)
	}
}

func TestFailures(t *testing.T) {
	var n atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 3 {
		case 0:
			w.WriteHeader(http.StatusBadGateway)
		case 1:
			panic(http.ErrAbortHandler)
		}
	})
	r, err := Run(t.Context(), Config{Addr: addr, Clients: 2, Mix: Mix{Keys: 1, Path: "/"}, Time: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered == 0 || r.Failures["status 502"] == 0 || r.Failures["unexpected EOF"] == 0 {
		t.Errorf("answered %d, failures %v", r.Answered, r.Failures)
	}
}

func TestTimeout(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	addr := serve(t, func(http.ResponseWriter, *http.Request) { <-stop })
	r, err := Run(t.Context(), Config{Addr: addr, Clients: 1, Mix: Mix{Keys: 1, Path: "/"}, Time: time.Second, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Failures[errTimeout.Error()] < 2 {
		t.Errorf("failures %v", r.Failures)
	}
}

func TestEndsWithContext(t *testing.T) {
	addr := serve(t, func(http.ResponseWriter, *http.Request) {})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err := Run(ctx, Config{Addr: addr, Clients: 1, Mix: Mix{Keys: 1, Path: "/"}, Time: time.Hour, Begin: func() { cancel(enough) }})
	if !errors.Is(err, enough) {
		t.Errorf("Run returned %v", err)
	}
}

func TestPicker(t *testing.T) {
	const keys, draws = 100, 200_000
	for skew, want := range map[float64]float64{0: 0.01, 0.5: 0.0538, 1.1: 0.2309, 2: 0.6116} {
		pick := picker(keys, skew, rand.New(rand.NewPCG(1, 1)))
		var first int
		for range draws {
			if i := pick(); i == 0 {
				first++
			} else if i >= keys {
				t.Fatalf("key %d of %d", i, keys)
			}
		}
		if got := float64(first) / draws; got < want*0.9 || got > want*1.1 {
			t.Errorf("skew %v: the first key is drawn %.4f of the time, want %.4f", skew, got, want)
		}
	}
}
