package tracing_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/spantest"
	"github.com/keyway-go/keyway/internal/tracing"
)

// environment reads variables NAME=VALUE, separated by spaces, from the test's environment.
func environment(t *testing.T, text string) (*tracing.Config, error) {
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	return tracing.Environment("keyway-router")
}

func TestEnvironment(t *testing.T) {
	const on = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 "
	for text, want := range map[string]string{
		"":                               "off",
		"OTEL_SERVICE_NAME=x":            "off",
		"OTEL_TRACES_SAMPLER=always_on":  "off",
		on:                               "on",
		on + "OTEL_SDK_DISABLED=true":    "off",
		on + "OTEL_SDK_DISABLED=FALSE":   "on",
		on + "OTEL_TRACES_EXPORTER=none": "off",
		on + "OTEL_TRACES_EXPORTER=otlp": "on",
		"OTEL_TRACES_EXPORTER=otlp":      "on",
		"OTEL_TRACES_EXPORTER=console":   "on",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://collector:4318/v1/traces":                              "on",
		on + "OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.25":                   "on",
		on + "OTEL_EXPORTER_OTLP_HEADERS=a=b,c=d%20e OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test": "on",

		"OTEL_TRACES_EXPORTER=jaeger":                       "OTEL_TRACES_EXPORTER",
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318":        "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=grpc://x:4317":  "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		on + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc":             "OTEL_EXPORTER_OTLP_PROTOCOL",
		on + "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json": "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		on + "OTEL_EXPORTER_OTLP_HEADERS=secret":            "OTEL_EXPORTER_OTLP_HEADERS",
		on + "OTEL_BSP_MAX_QUEUE_SIZE=0":                    "OTEL_BSP_MAX_QUEUE_SIZE",
	} {
		t.Run(text, func(t *testing.T) {
			c, err := environment(t, text)
			got := "off"
			if c != nil {
				got = "on"
			}
			if err != nil {
				got, _, _ = strings.Cut(err.Error(), " ")
			}
			if got != want {
				t.Errorf("%s: %s (%v), want %s", text, got, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows what may be a secret: %v", err)
			}
		})
	}
}

// start starts what the environment says, until the test ends.
func start(t *testing.T, text string, stdout io.Writer, log io.Writer) *tracing.Tracing {
	t.Helper()
	c := kit.Must(environment(t, text))
	tr := c.Start(stdout, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(tr.Close)
	return tr
}

// span makes a span.
func span(t *testing.T, tr *tracing.Tracing, name string) {
	_, s := tr.TracerProvider().Tracer("test").Start(t.Context(), name)
	s.End()
}

func TestOff(t *testing.T) {
	var c *tracing.Config
	tr := c.Start(io.Discard, slog.New(slog.DiscardHandler))
	if p := tr.TracerProvider(); p != nil {
		t.Errorf("without a configuration spans are made by %v", p)
	}
	if all := metrictest.Gather(t, tr); len(all) > 0 {
		t.Errorf("without spans there are metrics: %v", all)
	}
	tr.Close()
}

// A collector that is not there for a moment gets the spans all the same, once.
func TestCollectorGetsSpans(t *testing.T) {
	sink := spantest.NewSink(t)
	answers := make(chan int, 1)
	answers <- http.StatusServiceUnavailable
	var header http.Header
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case status := <-answers:
			w.WriteHeader(status)
			return
		default:
		}
		header = r.Header.Clone()
		r.Body = io.NopCloser(kit.Must(gzip.NewReader(r.Body)))
		sink.ServeHTTP(w, r)
	}))
	t.Cleanup(collector.Close)
	tr := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL+"/base OTEL_EXPORTER_OTLP_COMPRESSION=gzip OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20x OTEL_BSP_SCHEDULE_DELAY=1", io.Discard, t.Output())
	ctx, parent := tr.TracerProvider().Tracer("test").Start(t.Context(), "parent", trace.WithSpanKind(trace.SpanKindServer))
	_, child := tr.TracerProvider().Tracer("test").Start(ctx, "child", trace.WithSpanKind(trace.SpanKindClient))
	child.End()
	parent.End()
	got := sink.Await(t, 2)
	if got[0].Name != "child" || got[1].Name != "parent" || got[0].Parent != got[1].ID || got[0].Trace != got[1].Trace || got[0].Service != "keyway-router" || got[1].Parent != "" {
		t.Errorf("the collector has %+v", got)
	}
	if got[0].Path != "/base/v1/traces" || header.Get("Authorization") != "Bearer x" || header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("at %s it has got %v", got[0].Path, header)
	}
}

// A batch that the collector refuses for good is sent once, and counted as lost.
func TestRefusedBatchIsLost(t *testing.T) {
	var requests atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		http.Error(w, "no such tenant", http.StatusBadRequest)
	}))
	t.Cleanup(collector.Close)
	var log kit.Buffer
	tr := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, io.Discard, &log)
	span(t, tr, "refused")
	tr.Close()
	lost := metrictest.Gather(t, tr)[`keyway_trace_spans_dropped_total{reason="not-taken"}`]
	if requests.Load() != 1 || lost != 1 || !strings.Contains(log.String(), "no such tenant") {
		t.Errorf("%d requests, %v spans lost, log: %s", requests.Load(), lost, log.String())
	}
}

// Nobody waits for a collector, and the end is bounded.
func TestUnreachableCollectorCostsNobodyAnything(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(collector.Close)
	t.Cleanup(func() { close(release) })
	var log kit.Buffer
	tr := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL+" OTEL_BSP_MAX_QUEUE_SIZE=4 OTEL_BSP_SCHEDULE_DELAY=1", io.Discard, &log)
	for range 1000 { // which would not end if one of them waited
		span(t, tr, "lost")
	}
	const full, notTaken = `keyway_trace_spans_dropped_total{reason="queue-full"}`, `keyway_trace_spans_dropped_total{reason="not-taken"}`
	if lost := metrictest.Gather(t, tr); lost[full] < 1000-4-4 || lost[notTaken] != 0 { // but those in the queue and in a batch
		t.Errorf("while the collector hangs, the metrics are %v", lost)
	}
	tr.Close()
	if lost := metrictest.Gather(t, tr); lost[full]+lost[notTaken] != 1000 || lost[notTaken] == 0 {
		t.Errorf("in the end the metrics are %v", lost)
	}
	if text := log.String(); !strings.Contains(text, "spans of traces were lost") || !strings.Contains(text, "spans_so_far=") {
		t.Errorf("the log: %s", text)
	}
}

// What the SDK cannot use of the environment is logged.
func TestBadVariablesAreLogged(t *testing.T) {
	var log kit.Buffer
	start(t, "OTEL_TRACES_EXPORTER=otlp OTEL_TRACES_SAMPLER=sometimes OTEL_EXPORTER_OTLP_TIMEOUT=10s OTEL_RESOURCE_ATTRIBUTES=a", io.Discard, &log)
	for _, want := range []string{"unsupported sampler: sometimes", "10s", "missing value"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
}

// failing fails to write.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

// Lost spans are logged once in 10 s, with how many there were so far.
func TestLostSpansAreLoggedOnceInTenSeconds(t *testing.T) {
	c := kit.Must(environment(t, "OTEL_TRACES_EXPORTER=console"))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tr := c.Start(failing{}, slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 * 60 {
			span(t, tr, "lost")
			time.Sleep(time.Second) // of the bubble's clock
		}
		synctest.Wait()
		tr.Close()
		lines := strings.Count(log.String(), "\n")
		if lines < 15 || lines > 20 || !strings.Contains(log.String(), "span 0: full") {
			t.Errorf("in three minutes the log has %d lines: %s", lines, log.String())
		}
	})
}

func TestConsole(t *testing.T) {
	var out kit.Buffer
	c := kit.Must(environment(t, "OTEL_TRACES_EXPORTER=console OTEL_TRACES_SAMPLER=always_on"))
	tr := c.Start(&out, slog.New(slog.DiscardHandler))
	span(t, tr, "a name")
	tr.Close()
	var line struct {
		Name        string
		SpanContext struct{ TraceID string }
	}
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line.Name != "a name" || len(line.SpanContext.TraceID) != 32 {
		t.Errorf("%q: %v", out.String(), err)
	}
}

// Any number of goroutines makes spans, of which none is lost while the collector takes them.
func TestManySpans(t *testing.T) {
	sink := spantest.NewSink(t)
	var log kit.Buffer
	tr := start(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+sink.URL+"/traces OTEL_BSP_MAX_QUEUE_SIZE=4096 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=100", io.Discard, &log)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				span(t, tr, "one")
			}
		})
	}
	wg.Wait()
	tr.Close()
	if got := sink.Await(t, 800); got[0].Path != "/traces" || log.String() != "" {
		t.Errorf("at %s, with the log %s", got[0].Path, log.String())
	}
}
