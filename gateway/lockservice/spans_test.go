package lockservice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/test/spantest"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// tracingCaller is the Traceparent of requests.
const tracingCaller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// tracedLocks is a worker, a client and a lock service whose spans are kept, in a bubble.
type tracedLocks struct {
	*lockSite
	*spantest.Spans
	worker *site.Worker
	client *client.Client
}

func newTracedLocks(t *testing.T) *tracedLocks {
	kept := spantest.New(t)
	s := &tracedLocks{Spans: kept, lockSite: newLockSite(t, func(cfg *router.Config) { cfg.TracerProvider = kept })}
	s.worker = s.StartServing(func(cfg *worker.Config) { cfg.TracerProvider = kept })
	s.worker.AwaitServing(t, s.Ring.Partitions) // a key of one that opens only now may be asked for twice
	s.client = s.lockSite.NewClient(func(cfg *client.Config) { cfg.TracerProvider = kept })
	return s
}

// expectLock looks at the spans of a lock: the call's, the attempt's and that of the time with the key held.
func expectLock(t *testing.T, call, attempt, execution spantest.Span, token int64) {
	t.Helper()
	if !attempt.Is(call) || !execution.Is(attempt) {
		t.Errorf("the spans do not belong to each other: %+v, %+v, %+v", call, attempt, execution)
	}
	spantest.Expect(t, attempt, map[string]any{"keyway.key_hash": "c3d31922c50b1b63", "keyway.key": nil, "keyway.worker": "w1", "error.type": nil})
	spantest.Expect(t, execution, map[string]any{"keyway.key_hash": "c3d31922c50b1b63", "keyway.key": nil, "keyway.worker": "w1", "keyway.way": "lock", "keyway.token": token, "error.type": nil})
}

// A key of another node is asked for within the caller's span, and held there in one that ends with its release.
func TestSpansOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		ctx, caller := s.Tracer("test").Start(t.Context(), "caller")
		var token int64
		hold := func(x gateway.Execution) error {
			ctx := x.Context()
			if trace.SpanFromContext(ctx) != caller {
				t.Error("what runs with the key is not a part of its caller's span")
			}
			token = x.Token()
			return s.client.Do(ctx, "k", func(gateway.Execution) error { return nil }) // a part of it, without spans
		}
		if err := s.client.Do(ctx, "k", hold); err != nil {
			t.Fatal(err)
		}
		spans := s.Await(t, "internal lock", "client acquire", "server execution")
		if spans[0].Parent.SpanID() != caller.SpanContext().SpanID() {
			t.Error("the call is not a part of its caller's span")
		}
		expectLock(t, spans[0], spans[1], spans[2], token)
		spantest.Expect(t, spans[0], map[string]any{"keyway.token": token, "keyway.key_hash": "c3d31922c50b1b63", "error.type": nil})

		first := kit.Must(s.client.Lock(ctx, "k"))
		if _, err := s.client.TryLock(ctx, "k"); !errors.Is(err, locking.ErrLocked) {
			t.Fatal(err)
		}
		refused := map[string]any{"error.type": "key-held", "keyway.token": nil}
		spantest.Expect(t, s.Await(t, "internal lock", "client acquire", "internal lock")[2], refused) // without a call
		elsewhere := s.NewClient()
		second := kit.Must(elsewhere.Lock(t.Context(), "k2"))
		if _, err := s.client.TryLock(ctx, "k2"); !errors.Is(err, locking.ErrLocked) {
			t.Fatal(err)
		}
		for _, span := range s.Await(t, "internal lock", "client acquire") {
			spantest.Expect(t, span, refused)
		}
		if err := second.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		s.Await(t, "server execution")
		all := make(chan error)
		go func() {
			all <- s.client.DoAll(ctx, []string{"k", "l"}, func(gateway.Execution) error { return nil })
		}()
		synctest.Wait()
		time.Sleep(time.Second) // of the bubble's clock
		if err := first.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-all; err != nil {
			t.Fatal(err)
		}
		spans = s.Await(t, "server execution", "internal lock", "client acquire", "internal queue wait", "server execution", "internal lock", "client acquire", "server execution", "client release")
		if spans[4].Is(spans[6]) { // those of the two keys begin at one time
			spans[4], spans[7] = spans[7], spans[4]
		}
		if !spans[3].Is(spans[2]) || !spans[4].Is(spans[2]) || !spans[7].Is(spans[6]) {
			t.Errorf("the spans of DoAll do not belong to each other: %+v", spans)
		}
		caller.End()
		s.Await(t, "internal caller")
	})
}

// Callers of one client who take turns have a span each, with the token of each; the call to the owner, and the time with
// the key held, which is one for all of them, are in that of the first.
func TestSpansOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		first := kit.Must(s.client.Lock(t.Context(), "k"))
		var turns sync.WaitGroup
		callers, tokens := make([]trace.Span, 4), make([]int64, 4)
		for i := range callers {
			var ctx context.Context
			ctx, callers[i] = s.Tracer("test").Start(t.Context(), "caller")
			turns.Go(func() {
				l, err := s.client.Lock(ctx, "k")
				if err != nil {
					t.Error(err)
					return
				}
				tokens[i] = l.Token()
				time.Sleep(time.Second) // of the bubble's clock
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		turns.Wait()
		one := []string{"internal lock", "client acquire", "internal queue wait", "server execution"}
		spans := s.Await(t, append([]string{"internal lock", "client acquire", "server execution", "internal lock", "internal lock"}, append(one, one...)...)...)
		alone, together := spans[5:9], spans[9:13] // the second caller asks for himself, and then the third for the fourth and fifth too
		calls := []spantest.Span{alone[0], together[0], spans[3], spans[4]}
		slices.SortFunc(calls, func(a, b spantest.Span) int { return a.StartTime.Compare(b.StartTime) })
		for i, call := range calls {
			if call.Parent.SpanID() != callers[i].SpanContext().SpanID() {
				t.Errorf("the call of %d is a part of %v", i, call.Parent)
			}
			spantest.Expect(t, call, map[string]any{"keyway.token": tokens[i], "error.type": nil})
		}
		acquires := []spantest.Span{alone[1], together[1]}
		for i, acquire := range acquires {
			if !acquire.Is(calls[i]) {
				t.Errorf("call %d to the owner is a part of %v", i, acquire.Parent)
			}
		}
		for i, execution := range []spantest.Span{alone[3], together[3]} {
			expectLock(t, calls[i], acquires[i], execution, tokens[i])
		}
		if held := together[3].EndTime.Sub(together[3].StartTime); held < 3*time.Second {
			t.Errorf("three have had the key within %v", held)
		}
	})
}

// Readers who get their key along with another one have waited for it, too.
func TestSpansOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		writer := kit.Must(s.client.Lock(t.Context(), "k"))
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				l, err := s.client.RLock(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second) // of the bubble's clock
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second) // of the bubble's clock
		if err := writer.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
		names := []string{"internal lock", "client acquire", "server execution"}
		for range 3 {
			names = append(names, "internal lock", "client acquire", "internal queue wait", "server execution")
		}
		spans := s.Await(t, names...)
		waits := make(map[trace.SpanID]bool)
		for _, span := range spans {
			if span.Name == "queue wait" {
				waits[span.Parent.SpanID()] = span.EndTime.Sub(span.StartTime) >= time.Second
			}
		}
		for i, acquire := range spans {
			if acquire.Name == "acquire" && waits[acquire.SpanContext.SpanID()] != (i > 2) {
				t.Errorf("span %d: waited a second: %t", i, waits[acquire.SpanContext.SpanID()])
			}
		}
	})
}

// What a caller asks of a lock's owner is a span of his: another lease, and the end, if he waits for that. Renewals are no
// request of his.
func TestSpansOfCallsAboutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		ctx, caller := s.Tracer("test").Start(t.Context(), "caller")
		l := kit.Must(s.client.Lock(t.Context(), "k"))
		s.Await(t, "internal lock", "client acquire")
		time.Sleep(time.Minute) // of the bubble's clock, with renewals
		if all := s.Ended(); len(all) > 0 {
			t.Errorf("renewals have spans: %v", all)
		}
		if err := l.Extend(ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		spans := s.Await(t, "client extend", "client release", "server execution")
		for _, span := range spans[:2] {
			if span.Parent.SpanID() != caller.SpanContext().SpanID() {
				t.Errorf("%s is a part of %v", span.Name, span.Parent)
			}
			spantest.Expect(t, span, map[string]any{"keyway.key_hash": "c3d31922c50b1b63", "keyway.key": nil, "error.type": nil})
		}
		if err := l.Unlock(ctx); !errors.Is(err, locking.ErrNotOwner) {
			t.Fatal(err)
		}
		if all := s.Ended(); len(all) > 0 {
			t.Errorf("an unlock that asks nobody has spans: %v", all)
		}
		gone := kit.Must(s.client.Lock(t.Context(), "k"))
		kit.Must(s.client.Operator().Unlock(t.Context(), "k", "an operator"))
		if err := gone.Unlock(ctx); !errors.Is(err, locking.ErrNotOwner) {
			t.Fatal(err)
		}
		spantest.Expect(t, s.Await(t, "internal lock", "client acquire", "client release", "server execution")[2], map[string]any{"error.type": "lock-gone"})
		both := kit.Must(s.client.LockAll(t.Context(), []string{"k", "z"}))
		synctest.Wait()
		s.Reset()
		if err := both.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		s.Await(t, "client release", "client release", "server execution", "server execution")
		caller.End()
	})
}

// What ends a lock but its holder is in its span.
func TestSpanOfALockThatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		if a := s.ask(t.Context(), "POST", "/v1/locks/k?ttl=1s"); a.code != 200 {
			t.Fatal(a.body)
		}
		s.Await(t, "server POST /v1/locks/{key}", "client acquire")
		time.Sleep(2 * time.Second)
		spantest.Expect(t, s.Await(t, "server execution")[0], map[string]any{"error.type": "expired"})
	})
}

// A key of the node's own has the spans of an execution within that of the call.
func TestSpansOfLocksAtTheNodeItself(t *testing.T) {
	kept := spantest.New(t)
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.TracerProvider = kept })
	c := site.NewClient(t, client.Config{Members: w.Member, Local: w.Local(w.Handler(nil)), TracerProvider: kept})
	if err := c.Do(t.Context(), "k", func(gateway.Execution) error { return nil }); err != nil {
		t.Fatal(err)
	}
	kept.Await(t, "internal execution") // of the worker, with nothing around it
	l, err := c.Lock(t.Context(), "k")
	if err == nil {
		err = l.Unlock(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	spans := kept.Await(t, "internal lock", "internal execution")
	if !spans[1].Is(spans[0]) || spans[0].Get("keyway.token") != spans[1].Get("keyway.token") {
		t.Errorf("the spans do not belong to each other: %+v", spans)
	}
	if err := site.NewClient(t, client.Config{Members: w.Member, Limits: gateway.Limits{Hold: time.Millisecond}, TracerProvider: kept}).Do(t.Context(), "", nil); !errors.Is(err, gateway.ErrNoKey) {
		t.Fatal(err)
	}
	if all := kept.Ended(); len(all) > 0 {
		t.Errorf("what is refused before anybody is asked has spans: %v", all)
	}
}

// Each request to the lock service is a span of its client's trace, which goes on at the owner. No span has the key.
func TestSpansOfTheLockService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTracedLocks(t)
		const key = "secret"
		a := s.ask(t.Context(), "POST", "/v1/locks/"+key, "Traceparent", tracingCaller)
		if a.code != 200 {
			t.Fatal(a.body)
		}
		spans := s.Await(t, "server POST /v1/locks/{key}", "client acquire")
		request, attempt := spans[0], spans[1]
		if request.Parent.SpanID().String() != tracingCaller[36:52] || !attempt.Is(request) {
			t.Errorf("the spans do not belong to each other: %+v", spans)
		}
		spantest.Expect(t, request, map[string]any{"http.route": "/v1/locks/{key}", "http.request.method": "POST", "http.response.status_code": int64(200)})
		held := s.ask(t.Context(), "POST", "/v1/locks?key="+key+"&key=z")
		renewed := s.ask(t.Context(), "PUT", "/v1/locks/"+key+"?lease="+a.Lease)
		freed := s.ask(t.Context(), "DELETE", "/v1/locks/"+key+"?lease="+a.Lease)
		gone := s.ask(t.Context(), "PUT", "/v1/locks/"+key+"?lease="+a.Lease)
		if held.code != 423 || renewed.code != 200 || freed.code != 204 || gone.code != 410 {
			t.Fatal(held.code, renewed.code, freed.code, gone.code)
		}
		all := append(spans, s.Await(t, "server POST /v1/locks", "client acquire", "server PUT /v1/locks/{key}", "client extend", "server DELETE /v1/locks/{key}", "client release", "server PUT /v1/locks/{key}", "client extend", "server execution")...)
		execution := all[10]
		if !execution.Is(attempt) {
			t.Errorf("the time with the key held is a part of %v", execution.Parent)
		}
		spantest.Expect(t, execution, map[string]any{"keyway.token": a.Token, "keyway.way": "lock", "error.type": nil})
		spantest.Expect(t, all[2], map[string]any{"http.response.status_code": int64(423), "error.type": nil})
		spantest.Expect(t, all[3], map[string]any{"error.type": "key-held"})
		spantest.Expect(t, all[9], map[string]any{"error.type": "lock-gone"})
		for _, span := range all {
			for _, attr := range append(span.Attributes, attribute.String("name", span.Name)) {
				if strings.Contains(attr.Value.String(), key) {
					t.Errorf("%s of %q has the key: %s", attr.Key, span.Name, attr.Value.String())
				}
			}
		}

		unsampled := strings.TrimSuffix(tracingCaller, "01") + "00"
		if a := s.ask(t.Context(), "POST", "/v1/locks/k?ttl=1s", "Traceparent", unsampled); a.code != 200 {
			t.Fatal(a.body)
		}
		time.Sleep(2 * time.Second)
		if all := s.Ended(); len(all) > 0 {
			t.Errorf("of an unsampled trace there are spans: %v", all)
		}
	})
}
