// Package tracing makes the spans of a program and sends them to a collector of OpenTelemetry,
// as the standard variables of the environment say. The SDK reads most of these, and batches and
// sends the spans; this package counts and logs the spans that are lost.
package tracing

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/requestlog"
)

// Tracing makes the spans of a program and sends them. A nil one makes none.
type Tracing struct {
	provider *sdk.TracerProvider
	queue    *queue
}

// Start makes spans from now on; nil for a nil c. They are written to stdout, or sent. Lost spans
// are logged, and variables that the SDK cannot use. The caller must call [Tracing.Close].
func (c *Config) Start(stdout io.Writer, logger *slog.Logger) *Tracing {
	if c == nil {
		return nil
	}
	handle := func(level slog.Level) otel.ErrorHandlerFunc {
		return func(err error) { logger.Log(context.Background(), level, "traces", "error", err) }
	}
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	otel.SetErrorHandler(handle(slog.LevelWarn))
	defer otel.SetErrorHandler(handle(slog.LevelDebug)) // the queue logs spans that are lost
	q := &queue{log: requestlog.New(logger), room: int64(c.queue), exporter: c.exporter(stdout)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.SpanProcessor = sdk.NewBatchSpanProcessor(exporting{q}, sdk.WithMaxQueueSize(c.queue))
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	return &Tracing{sdk.NewTracerProvider(sdk.WithResource(c.resource()), sdk.WithRawSpanLimits(limits), sdk.WithSpanProcessor(q)), q}
}

// maxValue is how many characters of an attribute's value are kept.
const maxValue = 1024

// resource returns what all spans of the program have in common.
func (c *Config) resource() *resource.Resource {
	r, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", c.program)), resource.WithFromEnv())
	if err != nil {
		otel.Handle(err) // r has the rest
	}
	return r
}

// exporter returns what writes or sends batches of spans. To make it does not fail: it connects to
// nothing.
func (c *Config) exporter(stdout io.Writer) (exporter sdk.SpanExporter) {
	if c.console {
		exporter, _ = stdouttrace.New(stdouttrace.WithWriter(stdout))
		return exporter
	}
	options := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: time.Second, MaxInterval: 10 * time.Second, MaxElapsedTime: time.Minute,
	})}
	if endpoint, _ := otlp("ENDPOINT"); endpoint == "" {
		options = append(options, otlptracehttp.WithInsecure()) // on this machine
	}
	exporter, _ = otlptracehttp.New(context.Background(), options...)
	return exporter
}

// TracerProvider returns what makes the spans; nil for none.
func (t *Tracing) TracerProvider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

var (
	families metrics.Families

	dropped = families.Counter("keyway_trace_spans_dropped_total", "Spans of traces that were lost, by reason.", "reason")
)

// Describe implements [prometheus.Collector].
func (t *Tracing) Describe(ch chan<- *prometheus.Desc) { families.Describe(ch) }

// Collect implements [prometheus.Collector]. A nil t has no metrics.
func (t *Tracing) Collect(ch chan<- prometheus.Metric) {
	if t == nil {
		return
	}
	metrics.Send(ch, dropped, t.queue.full.Load(), "queue-full")
	metrics.Send(ch, dropped, t.queue.notTaken.Load(), "not-taken")
}

// closeTimeout bounds how long Close sends the remaining spans.
const closeTimeout = 2 * time.Second

// Close sends the remaining spans, for 2 s at most, and ends what Start has begun.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	timer := time.AfterFunc(closeTimeout, t.queue.cancel) // from then on each batch fails at once
	defer timer.Stop()
	_ = t.provider.Shutdown(context.Background())
	t.queue.cancel()
}

// queue counts the spans around the SDK's batch processor, which drops spans silently. It admits no
// more spans than fit into that processor's queue. Any goroutine may add spans; the counts are
// atomic.
type queue struct {
	sdk.SpanProcessor
	exporter sdk.SpanExporter
	log      *slog.Logger
	room     int64
	ctx      context.Context // ends when Close gives up
	cancel   context.CancelFunc

	waiting        atomic.Int64 // spans that are neither exported nor lost
	full, notTaken atomic.Int64 // spans lost so far, by why
	said           int64        // lost spans when ExportSpans last logged; the processor calls that one at a time
}

// OnEnd implements [sdk.SpanProcessor]. It never waits.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	switch {
	case !s.SpanContext().IsSampled():
	case q.waiting.Add(1) > q.room:
		q.waiting.Add(-1)
		q.full.Add(1)
	default:
		q.SpanProcessor.OnEnd(s)
	}
}

// exporting is the queue as the exporter of its processor. It implements [sdk.SpanExporter].
type exporting struct{ q *queue }

func (e exporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	q := e.q
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ctx, cancel)()
	err := q.exporter.ExportSpans(ctx, spans)
	if err != nil {
		q.notTaken.Add(int64(len(spans)))
	}
	q.waiting.Add(-int64(len(spans)))
	if lost := q.full.Load() + q.notTaken.Load(); lost > q.said {
		q.log.Warn("spans of traces were lost: the collector did not take them, or not in time", "spans_so_far", lost, "error", err)
		q.said = lost
	}
	return err
}

func (e exporting) Shutdown(ctx context.Context) error { return e.q.exporter.Shutdown(ctx) }
