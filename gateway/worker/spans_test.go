package worker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/test/spantest"
)

// startTraced starts a worker whose spans are kept.
func startTraced(t *testing.T, change ...func(*worker.Config)) (*site.Worker, *spantest.Spans) {
	kept := spantest.New(t)
	traced := func(cfg *worker.Config) { cfg.TracerProvider = kept }
	return site.New(t, 16).StartReady(append([]func(*worker.Config){direct, traced}, change...)...), kept
}

// An execution of this program is a part of its caller's span, and has one for what it calls.
func TestSpansOfCalls(t *testing.T) {
	w, kept := startTraced(t)
	ctx, caller := kept.Tracer("test").Start(t.Context(), "caller")
	var token int64
	var inner trace.SpanContext
	err := w.Do(ctx, "k", func(x gateway.Execution) error {
		token, inner = x.Token(), trace.SpanContextFromContext(x.Context())
		return w.Do(x.Context(), "k", func(gateway.Execution) error { return nil }) // a part of it
	})
	if err != nil {
		t.Fatal(err)
	}
	span := kept.Await(t, "internal execution")[0]
	if span.Parent.SpanID() != caller.SpanContext().SpanID() || inner.SpanID() != span.SpanContext.SpanID() {
		t.Errorf("the execution is a part of %v, and its context of %v", span.Parent.SpanID(), inner.SpanID())
	}
	for name, want := range map[string]any{"keyway.token": token, "keyway.worker": "w1", "keyway.way": "call", "keyway.key": nil} {
		if got := span.Get(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if err := w.TryDo(ctx, "k", func(gateway.Execution) error { return nil }); err != nil {
		t.Fatal(err)
	}
	kept.Await(t, "internal execution")
	caller.End()
	kept.Await(t, "internal caller")
}

// What a handler answers, and how it ends, is in its span.
func TestSpansOfHandlers(t *testing.T) {
	w, kept := startTraced(t)
	s := site.Serve(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/") {
		case "fails":
			rw.WriteHeader(http.StatusInternalServerError)
		case "panics":
			panic(http.ErrAbortHandler)
		case "streams":
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.WriteHeader(http.StatusOK)
		}
	})))
	for path, tt := range map[string]struct{ status, failed any }{
		"silent":  {int64(200), nil},
		"fails":   {int64(500), "500"},
		"panics":  {nil, "aborted"},
		"streams": {int64(200), nil},
	} {
		span := spanOfRequest(t, kept, s, path)
		if span.Get("http.response.status_code") != tt.status || span.Get("error.type") != tt.failed || (span.Status.Code == codes.Error) != (tt.failed != nil) {
			t.Errorf("%s: status %v, error %v, %v", path, span.Get("http.response.status_code"), span.Get("error.type"), span.Status)
		}
	}
}

// spanOfRequest sends a request that is not repeated, and returns the span of its execution.
func spanOfRequest(t *testing.T, kept *spantest.Spans, s *httptest.Server, path string) spantest.Span {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), "GET", s.URL+"/"+path, nil))
	req.Close = true
	req.Header.Set(gateway.HeaderKey, "k")
	if res, err := s.Client().Do(req); err == nil {
		res.Body.Close()
	}
	return kept.Await(t, "server execution")[0]
}

// An execution that has taken its time says so.
func TestSpanOfATimeout(t *testing.T) {
	w, kept := startTraced(t, func(cfg *worker.Config) { cfg.Timeout = 20 * time.Millisecond })
	s := site.Serve(t, w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })))
	if span := spanOfRequest(t, kept, s, ""); span.Get("error.type") != "timeout" || span.Get("http.response.status_code") != int64(504) {
		t.Errorf("status %v, error %v", span.Get("http.response.status_code"), span.Get("error.type"))
	}
}

// A wait that ends without the key is a span too, and says why.
func TestSpansOfWaitsThatFail(t *testing.T) {
	w, kept := startTraced(t, func(cfg *worker.Config) { cfg.MaxWait = 5 * time.Millisecond })
	err := w.Do(t.Context(), "k", func(gateway.Execution) error {
		return w.Do(context.Background(), "k", func(gateway.Execution) error { return nil })
	})
	if err == nil {
		t.Fatal("a call has got a key that is held")
	}
	wait := kept.Await(t, "internal queue wait", "internal execution")[0]
	if wait.Get("error.type") != "key-waited" {
		t.Errorf("the wait has failed with %v", wait.Get("error.type"))
	}
}

// The execution of a batch is a part of the first call's span, and says whose it is besides.
func TestSpansOfBatches(t *testing.T) {
	w, kept := startTraced(t)
	b := newBatches(t, w, worker.BatchConfig{})
	names := []string{"internal execution", "internal execution"}
	var callers []trace.SpanContext
	err := w.Do(t.Context(), "k", func(gateway.Execution) error {
		for i, in := range []string{"a", "b", "c"} {
			ctx, span := kept.Tracer("test").Start(t.Context(), in)
			callers, names = append(callers, span.SpanContext()), append(names, "internal "+in, "internal queue wait")
			b.wg.Go(func() {
				defer span.End()
				if _, err := b.Do(ctx, "k", in); err != nil {
					t.Error(err)
				}
			})
			kit.Eventually(t, "the call waits", func() bool {
				return metrictest.Gather(t, w.Worker)[`keyway_worker_waiting{for="key"}`] == float64(i+1)
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.wg.Wait()
	spans := kept.Await(t, names...)
	batch := spans[1]
	if batch.Get("keyway.batch.size") == nil {
		batch = spans[0]
	}
	if batch.Parent.SpanID() != callers[0].SpanID() || batch.Get("keyway.batch.size") != int64(3) {
		t.Errorf("the batch is of %v calls, and a part of %v", batch.Get("keyway.batch.size"), batch.Parent.SpanID())
	}
	var linked []trace.SpanID
	for _, l := range batch.Links {
		linked = append(linked, l.SpanContext.SpanID())
	}
	if !slices.Equal(linked, []trace.SpanID{callers[1].SpanID(), callers[2].SpanID()}) {
		t.Errorf("the batch is linked with %v, want those of the calls behind the first: %v", linked, callers)
	}
	for i, wait := range []spantest.Span{spans[3], spans[5], spans[7]} {
		if !slices.ContainsFunc(callers, func(sc trace.SpanContext) bool { return sc.SpanID() == wait.Parent.SpanID() }) {
			t.Errorf("wait %d is a part of %v", i, wait.Parent.SpanID())
		}
		if slices.ContainsFunc(wait.Attributes, func(a attribute.KeyValue) bool { return a.Key == "error.type" }) {
			t.Errorf("wait %d has failed: %v", i, wait.Attributes)
		}
	}
}
