package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/test/spantest"
)

// Calls of a client are parts of their callers' spans.
func TestSpansOfClients(t *testing.T) {
	for way, carrier := range map[string]string{"link": "link", "HTTP": "http1", "local": "local"} {
		t.Run(way, func(t *testing.T) {
			got := make(chan *http.Request, 1)
			cfg := clientWay(t, way, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				got <- r
				io.WriteString(w, "hello")
			})
			kept := spantest.New(t)
			cfg.TracerProvider = kept
			c := site.NewClient(t, cfg)
			ctx, caller := kept.Tracer("test").Start(t.Context(), "caller")
			for _, body := range []int{0, 100_000} {
				req := keyed(t, "POST", "/orders/1", strings.NewReader(strings.Repeat("x", body)))
				req.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") // which is not the caller's
				res, err := c.RoundTrip(req.WithContext(ctx))
				if err != nil {
					t.Fatal(err)
				}
				kit.Must(io.ReadAll(res.Body))
				res.Body.Close()
				spans := kept.Await(t, "internal POST", "client POST")
				call, attempt := spans[0], spans[1]
				if call.Parent.SpanID() != caller.SpanContext().SpanID() || !attempt.Is(call) {
					t.Errorf("the spans do not belong to each other: %+v", spans)
				}
				spantest.Expect(t, call, map[string]any{"url.path": "/orders/1", "http.response.status_code": int64(200), "keyway.worker": "w1", "error.type": nil, "keyway.way": carrier})
				r := <-got
				if sc := spantest.ParentOf(r.Header.Get("Traceparent")); len(r.Header["Traceparent"]) != 1 || sc.SpanID() != attempt.SpanContext.SpanID() {
					t.Errorf("the worker gets Traceparent %q", r.Header["Traceparent"])
				}
			}
			caller.End()
			kept.Await(t, "internal caller")
		})
	}
	kept := spantest.New(t)
	c := site.NewClient(t, client.Config{Members: hub.Of(), Limits: gateway.Limits{Hold: time.Millisecond}, TracerProvider: kept})
	if _, err := c.RoundTrip(keyed(t, "GET", "/", nil)); err == nil {
		t.Fatal("a call without workers has an answer")
	}
	spans := kept.Await(t, "internal GET", "internal hold")
	spantest.Expect(t, spans[0], map[string]any{"error.type": "unavailable", "http.response.status_code": nil})
}
