// Package spantest keeps the spans that are made in a test.
package spantest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// Spans makes spans, and keeps those that have ended.
type Spans struct {
	*sdk.TracerProvider
	exporter *tracetest.InMemoryExporter
}

// New makes a Spans whose traces have spans if those of their parents have, or if there are none.
func New(t testing.TB) *Spans {
	s := &Spans{exporter: tracetest.NewInMemoryExporter()}
	s.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(s.exporter), sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return s
}

// Span is a span that has ended.
type Span struct{ tracetest.SpanStub }

// Get returns an attribute of the span, nil if it has none of that name.
func (s Span) Get(name string) any {
	i := slices.IndexFunc(s.Attributes, func(a attribute.KeyValue) bool { return string(a.Key) == name })
	if i < 0 {
		return nil
	}
	return s.Attributes[i].Value.AsInterface()
}

// Is reports whether the span is a part of other.
func (s Span) Is(partOf Span) bool {
	return s.Parent.SpanID() == partOf.SpanContext.SpanID() && s.Parent.TraceID() == partOf.SpanContext.TraceID()
}

// Ended returns the spans that have ended since the last call of Await or Reset, in order.
func (s *Spans) Ended() (list []Span) {
	for _, stub := range s.exporter.GetSpans() {
		list = append(list, Span{stub})
	}
	return list
}

// Reset forgets all spans.
func (s *Spans) Reset() { s.exporter.Reset() }

// Await waits until spans of these kinds and names, such as "server GET orders", and as many of each, have
// ended, forgets them, and returns them in that order: those of one name as they have begun.
func (s *Spans) Await(t testing.TB, names ...string) (list []Span) {
	t.Helper()
	want := slices.Sorted(slices.Values(names))
	var got []Span
	kit.Eventually(t, fmt.Sprintf("there are spans %q", want), func() bool {
		got = s.Ended()
		return len(got) >= len(want)
	})
	s.Reset()
	slices.SortStableFunc(got, func(a, b Span) int { return a.StartTime.Compare(b.StartTime) })
	for _, name := range names {
		i := slices.IndexFunc(got, func(span Span) bool { return span.title() == name })
		if i < 0 {
			t.Fatalf("there is no span %q among %q", name, titles(got))
		}
		list = append(list, got[i])
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Fatalf("there are spans %q besides %q", titles(got), want)
	}
	return list
}

func (s Span) title() string { return s.SpanKind.String() + " " + s.Name }

func titles(spans []Span) string {
	var names []string
	for _, s := range spans {
		names = append(names, s.title())
	}
	return strings.Join(names, ", ")
}

// ParentOf returns what the fields of a request say that its sender's span is.
func ParentOf(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

// Expect compares attributes of a span; nil stands for none.
func Expect(t *testing.T, s Span, want map[string]any) {
	t.Helper()
	for name, v := range want {
		if got := s.Get(name); got != v {
			t.Errorf("%s of %q is %v (%T), want %v", name, s.Name, got, got, v)
		}
	}
}
