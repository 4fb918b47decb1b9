package router_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/tracing"
)

// BenchmarkTraces is a request through a router, over the link, and through a worker: without spans, with
// three of them that are sent to a collector, and with one request of a hundred that has them.
func BenchmarkTraces(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(collector.Close)
	for _, bench := range []struct {
		name string
		env  map[string]string
	}{
		{"off", nil},
		{"unsampled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}},
		{"sampled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for name, value := range bench.env {
				b.Setenv(name, value)
			}
			spans := kit.Must(tracing.Environment("bench")).Start(io.Discard, slog.New(slog.DiscardHandler))
			b.Cleanup(spans.Close)
			c := site.New(b, 16)
			w := c.StartReady(func(cfg *worker.Config) { cfg.TracerProvider = spans.TracerProvider() })
			w.Listen(b, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello") })))
			rt := c.NewRouter(router.Config{TracerProvider: spans.TracerProvider()})
			b.Cleanup(func() { rt.Close() })
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/orders/1", nil)
				r.Header.Set("X-Key", "k")
				answer := httptest.NewRecorder()
				if rt.ServeHTTP(answer, r); answer.Code != http.StatusOK {
					b.Fatal(answer.Code, answer.Body)
				}
			}
		})
	}
}
