package otlptest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/tracing"
)

// official is a client of OpenTelemetry's exporter that keeps what that makes of spans.
type official struct{ spans []*tracepb.ResourceSpans }

func (*official) Start(context.Context) error { return nil }
func (*official) Stop(context.Context) error  { return nil }

// UploadTraces implements [otlptrace.Client].
func (o *official) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	o.spans = append(o.spans, single(spans)...)
	return nil
}

// start starts spans that are sent to c, until the test ends.
func start(t *testing.T, c *collector) (*tracing.Tracing, *sdk.TracerProvider) {
	t.Helper()
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "10",
		"OTEL_SERVICE_NAME": "otlptest", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test,empty=",
	}
	cfg := kit.Must(tracing.Environment("keyway-router", func(name string) string { return env[name] }))
	tr := cfg.Start(io.Discard, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(tr.Close)
	return tr, tr.TracerProvider().(*sdk.TracerProvider)
}

// attributes are of all kinds, n more of them than a span keeps.
func attributes(n int) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.Bool("true", true), attribute.Bool("false", false), attribute.BoolSlice("bools", []bool{true, false}), attribute.BoolSlice("no bools", nil),
		attribute.Int64("zero", 0), attribute.Int64("least", math.MinInt64), attribute.Int64Slice("ints", []int64{0, -1, math.MaxInt64}),
		attribute.Float64("zero float", 0), attribute.Float64("pi", math.Pi), attribute.Float64Slice("floats", []float64{math.Inf(-1), 0}),
		attribute.String("empty", ""), attribute.String("text", "ä\n\x00"), attribute.StringSlice("texts", []string{"", "b"}), attribute.String("long", strings.Repeat("long", 1000)),
	}
	for i := len(list); i < sdk.DefaultAttributeCountLimit+n; i++ {
		list = append(list, attribute.Int(strings.Repeat("x", i), i))
	}
	return list
}

// What the collector gets of a span is what OpenTelemetry's own exporter makes of it, and the state and the flags
// of links, and the flags of spans, which that leaves out.
func TestCollectorGetsWhatOpenTelemetrySends(t *testing.T) {
	c := newCollector(t)
	_, provider := start(t, c)
	theirs := new(official)
	provider.RegisterSpanProcessor(sdk.NewSimpleSpanProcessor(kit.Must(otlptrace.New(t.Context(), theirs))))

	state := kit.Must(trace.ParseTraceState("a=1,b=2"))
	elsewhere := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 15: 2}, SpanID: trace.SpanID{3, 7: 4}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true})
	plain := provider.Tracer("plain")
	whole := provider.Tracer("whole", trace.WithInstrumentationVersion("v1.2.3"), trace.WithSchemaURL("https://example.com/schema"), trace.WithInstrumentationAttributes(attribute.Bool("of the scope", true)))
	var ids []trace.SpanID
	end := func(s trace.Span) {
		ids = append(ids, s.SpanContext().SpanID())
		s.End()
	}
	for _, kind := range []trace.SpanKind{trace.SpanKindInternal, trace.SpanKindServer, trace.SpanKindClient, trace.SpanKindProducer, trace.SpanKindConsumer} {
		ctx, s := plain.Start(t.Context(), kind.String(), trace.WithSpanKind(kind), trace.WithAttributes(attributes(0)...))
		_, child := whole.Start(ctx, "child", trace.WithAttributes(attributes(7)...))
		child.SetStatus(codes.Error, "why")
		child.RecordError(errors.New("an event"))
		child.AddEvent("more", trace.WithAttributes(attributes(3)...))
		end(child)
		s.SetStatus(codes.Ok, "")
		end(s)
	}
	_, s := plain.Start(trace.ContextWithRemoteSpanContext(t.Context(), elsewhere), "of elsewhere", trace.WithLinks(trace.Link{SpanContext: elsewhere, Attributes: attributes(5)}))
	for range sdk.DefaultLinkCountLimit + 1 {
		s.AddLink(trace.Link{SpanContext: elsewhere})
	}
	for range sdk.DefaultEventCountLimit + 2 {
		s.AddEvent("one of many")
	}
	end(s)
	_, s = plain.Start(t.Context(), "")
	end(s)

	got := c.await(len(ids))
	if len(got) != len(ids) || len(theirs.spans) != len(ids) {
		t.Fatalf("%d spans have ended, the collector has %d, OpenTelemetry's exporter %d", len(ids), len(got), len(theirs.spans))
	}
	for i, ours := range got {
		s, want := spanOf(ours), theirs.spans[i]
		if s.Flags&0xff != uint32(trace.FlagsSampled) {
			t.Errorf("%s: the flags are %x", s.Name, s.Flags)
		}
		s.Flags &^= 0xff
		for _, l := range s.Links {
			if l.TraceState != state.String() || l.Flags&0xff != uint32(trace.FlagsSampled) {
				t.Errorf("%s: its link has the state %q and the flags %x", s.Name, l.TraceState, l.Flags)
			}
			l.TraceState, l.Flags = "", l.Flags&^0xff
		}
		if s.Status == nil { // as good as an empty one
			s.Status = new(tracepb.Status)
		}
		if !proto.Equal(ours, want) {
			t.Errorf("the collector has\n%s\nand OpenTelemetry's exporter\n%s", prototext.Format(ours), prototext.Format(want))
		}
	}
}

// A text that is not UTF-8, which protobuf takes none of, costs no span: it is sent as far as it is.
func TestTextsThatAreNotUTF8(t *testing.T) {
	c := newCollector(t)
	_, provider := start(t, c)
	_, s := provider.Tracer("\xfe").Start(t.Context(), "\xff", trace.WithAttributes(attribute.String("\xff", "\xff"), attribute.StringSlice("list", []string{"\xff"})))
	s.SetStatus(codes.Error, "\xff")
	s.AddEvent("\xff")
	s.End()
	got := spanOf(c.await(1)[0])
	const bad = "\uFFFD"
	if got.Name != bad || got.Status.GetMessage() != bad || got.Events[0].GetName() != bad || got.Attributes[0].GetKey() != bad ||
		got.Attributes[0].GetValue().GetStringValue() != bad || got.Attributes[1].GetValue().GetArrayValue().GetValues()[0].GetStringValue() != bad {
		t.Errorf("the collector has %s", prototext.Format(got))
	}
}
