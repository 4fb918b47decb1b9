package tracing

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/internal/metrics"
)

// Tracing makes the spans of a program and sends them. A nil one makes none.
type Tracing struct {
	provider *sdk.TracerProvider
	queue    *queue
}

// Start makes spans from now on; nil for a nil c. They are written to stdout, or sent, and what is
// lost of them is logged. The caller must call [Tracing.Close].
func (c *Config) Start(stdout io.Writer, logger *slog.Logger) *Tracing {
	if c == nil {
		return nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Debug("traces", "error", err) }))
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxValue
	q := &queue{
		cfg: c, log: logger, export: c.exporter(stdout),
		spans: make(chan sdk.ReadOnlySpan, c.queue), flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return &Tracing{sdk.NewTracerProvider(sdk.WithResource(c.resource), sdk.WithSampler(c.sampler), sdk.WithRawSpanLimits(limits), sdk.WithSpanProcessor(q)), q}
}

// maxValue is how many characters of an attribute's value are kept.
const maxValue = 1024

// TracerProvider returns what makes the spans; nil for none.
func (t *Tracing) TracerProvider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

var dropped = metrics.Counter("keyway_trace_spans_dropped_total", "Spans of traces that were lost, by why.", "reason")

// Describe implements [prometheus.Collector].
func (t *Tracing) Describe(ch chan<- *prometheus.Desc) {
	metrics.Describe(ch, []metrics.Family{dropped})
}

// Collect implements [prometheus.Collector]. A nil t has no metrics.
func (t *Tracing) Collect(ch chan<- prometheus.Metric) {
	if t == nil {
		return
	}
	for i, reason := range reasons {
		metrics.Send(ch, dropped, t.queue.lost[i].Load(), reason)
	}
}

// closeTimeout is how long the spans that are left may take to be sent.
const closeTimeout = 2 * time.Second

// Close sends what is left, for 2 s at most, and ends what Start has begun.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the queue logs what is lost
}

// exporter writes or sends a batch of spans.
type exporter func(ctx context.Context, spans []sdk.ReadOnlySpan) error

func (c *Config) exporter(stdout io.Writer) exporter {
	if c.console {
		return console{stdout}.export
	}
	return newSender(c).export
}

// Why spans are lost.
const (
	queueFull = iota
	notTaken
)

var reasons = [...]string{queueFull: "queue-full", notTaken: "not-taken"}

// queue is an [sdk.SpanProcessor] that hands spans to an exporter in batches. No span waits
// for room: what comes while there is none is lost, counted, and logged once a minute at most.
type queue struct {
	cfg    *Config
	log    *slog.Logger
	export exporter

	spans  chan sdk.ReadOnlySpan
	flush  chan chan struct{} // asks for what is there to be sent, and is closed then
	stop   chan struct{}      // closed by Shutdown
	done   chan struct{}      // closed when nothing more is sent
	once   sync.Once          // guards the closing of stop
	ctx    context.Context    // ends with the time for Shutdown
	cancel context.CancelFunc

	lost [len(reasons)]atomic.Int64 // spans so far

	// The goroutine's.
	batch  []sdk.ReadOnlySpan
	said   int64     // of lost
	saidAt time.Time // when; zero for never
	failed error     // of the last batch
}

// OnStart implements [sdk.SpanProcessor].
func (q *queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements [sdk.SpanProcessor].
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	select {
	case q.spans <- s:
	default:
		q.lost[queueFull].Add(1)
	}
}

// Shutdown implements [sdk.SpanProcessor].
func (q *queue) Shutdown(ctx context.Context) error {
	q.once.Do(func() { close(q.stop) })
	unhook := context.AfterFunc(ctx, q.cancel)
	defer unhook()
	<-q.done
	return context.Cause(ctx)
}

// ForceFlush implements [sdk.SpanProcessor].
func (q *queue) ForceFlush(ctx context.Context) error {
	sent := make(chan struct{})
	select {
	case q.flush <- sent:
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-sent:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run sends spans until the queue is shut down.
func (q *queue) run() {
	defer close(q.done)
	defer q.cancel()
	tick := time.NewTicker(q.cfg.delay)
	defer tick.Stop()
	for {
		select {
		case s := <-q.spans:
			if q.batch = append(q.batch, s); len(q.batch) >= q.cfg.batch {
				q.send()
				tick.Reset(q.cfg.delay)
			}
		case <-tick.C:
			q.send()
		case sent := <-q.flush:
			q.sendAll()
			close(sent)
		case <-q.stop:
			q.sendAll()
			q.sayNow()
			return
		}
		q.say()
	}
}

// sendAll sends what is there.
func (q *queue) sendAll() {
	for {
		select {
		case s := <-q.spans:
			if q.batch = append(q.batch, s); len(q.batch) < q.cfg.batch {
				continue
			}
		default:
			q.send()
			return
		}
		q.send()
	}
}

// send sends a batch, or loses it.
func (q *queue) send() {
	if len(q.batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(q.ctx, q.cfg.patience, errPatience)
	defer cancel()
	if err := q.export(ctx, q.batch); err != nil {
		q.failed = err
		q.lost[notTaken].Add(int64(len(q.batch)))
	}
	clear(q.batch)
	q.batch = q.batch[:0]
}

var errPatience = errors.New("tracing: the collector has not taken a batch in time (OTEL_BSP_EXPORT_TIMEOUT)")

// sayEvery is how often lost spans are logged at most.
const sayEvery = time.Minute

func (q *queue) say() {
	if q.saidAt.IsZero() || time.Since(q.saidAt) >= sayEvery {
		q.sayNow()
	}
}

// sayNow logs what was lost since it was last said.
func (q *queue) sayNow() {
	n := q.lost[queueFull].Load() + q.lost[notTaken].Load()
	if n == q.said {
		return
	}
	args := []any{"spans", n - q.said}
	if q.failed != nil {
		args = append(args, "error", q.failed)
	}
	q.log.Warn("spans of traces were lost: the collector did not take them, or not in time", args...)
	q.said, q.saidAt, q.failed = n, time.Now(), nil
}
