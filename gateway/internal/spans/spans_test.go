package spans_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/test/spantest"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// valuesOf returns the values of fields.
func valuesOf(h http.Header) func(string) []string {
	return func(name string) []string { return h[name] }
}

func TestParse(t *testing.T) {
	good := "00-" + traceID + "-" + spanID + "-01"
	for text, ok := range map[string]bool{
		good:                                true,
		strings.TrimSuffix(good, "1") + "3": true,
		"cc" + good[2:]:                     true,
		"cc" + good[2:] + "-more":           true,
		"":                                  false,
		good + "-more":                      false,
		"ff" + good[2:]:                     false,
		"0" + good[2:]:                      false,
		"0x" + good[2:]:                     false,
		strings.ToUpper(good):               false,
		strings.Replace(good, "-", "_", 1):  false,
		good[:len(good)-1]:                  false,
		good + "0":                          false,
		"00-" + strings.Repeat("0", 32) + "-" + spanID + "-01":  false,
		"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01": false,
	} {
		sc := spans.Parse(valuesOf(http.Header{"Traceparent": {text}, "Tracestate": {"a=1", "b=2"}}))
		if sc.IsValid() != ok {
			t.Errorf("%q: %v, want good: %t", text, sc, ok)
		}
		if id := spans.TraceID([]string{text}); (id != "") != ok || ok && id != traceID {
			t.Errorf("%q: the trace is %q", text, id)
		}
		if ok && (sc.TraceID().String() != traceID || sc.SpanID().String() != spanID || !sc.IsSampled() || !sc.IsRemote() || sc.TraceState().String() != "a=1,b=2") {
			t.Errorf("%q: %+v", text, sc)
		}
	}
	for name, h := range map[string]http.Header{
		"two":       {"Traceparent": {good, good}},
		"none":      {"Tracestate": {"a=1"}},
		"bad state": {"Traceparent": {good}, "Tracestate": {"a"}},
	} {
		if sc := spans.Parse(valuesOf(h)); sc.IsValid() != (name == "bad state") || sc.TraceState().Len() > 0 {
			t.Errorf("%s: %+v", name, sc)
		}
	}
}

// What Parse has read, Fields writes.
func FuzzParse(f *testing.F) {
	f.Add("00-"+traceID+"-"+spanID+"-01", "a=1,b=2")
	f.Add("cc-"+traceID+"-"+spanID+"-ff-more", "")
	f.Add("", "=")
	f.Fuzz(func(t *testing.T, parent, state string) {
		sc := spans.Parse(valuesOf(http.Header{"Traceparent": {parent}, "Tracestate": {state}}))
		h := http.Header{"Traceparent": {"old"}, "Tracestate": {"old"}}
		spans.SetFields(h, sc)
		if !sc.IsValid() {
			if len(h) > 0 {
				t.Errorf("%q, %q: %v", parent, state, h)
			}
			return
		}
		if again := spans.Parse(valuesOf(h)); !again.Equal(sc) {
			t.Errorf("%q, %q: %+v, and written and read again %+v", parent, state, sc, again)
		}
		for name := range h {
			if !spans.IsField(strings.ToLower(name)) {
				t.Errorf("%s is no field of the Trace Context", name)
			}
		}
	})
}

// A span of the context goes before what a request says, which may be a client's.
func TestWithin(t *testing.T) {
	kept := spantest.New(t)
	values := valuesOf(http.Header{"Traceparent": {"00-" + traceID + "-" + spanID + "-01"}})
	if sc := trace.SpanContextFromContext(spans.Within(t.Context(), values)); sc.SpanID().String() != spanID || !sc.IsRemote() {
		t.Errorf("within no span: %+v", sc)
	}
	ctx, span := kept.Tracer("test").Start(context.Background(), "server")
	if sc := trace.SpanContextFromContext(spans.Within(ctx, values)); !sc.Equal(span.SpanContext()) {
		t.Errorf("within a span: %+v", sc)
	}
}

// Of a span that is not recorded nobody is asked what it says; its context goes on all the same.
func TestStart(t *testing.T) {
	kept := spantest.New(t)
	m := spans.New(kept, false)
	says := func() []attribute.KeyValue { return []attribute.KeyValue{spans.Worker.String("w1")} }
	silent := func() []attribute.KeyValue {
		t.Error("attributes are made of a span that is not recorded")
		return nil
	}
	now := time.Now()
	for flags, attrs := range map[string]func() []attribute.KeyValue{"00": silent, "01": says} {
		within := spans.Within(t.Context(), valuesOf(http.Header{"Traceparent": {"00-" + traceID + "-" + spanID + "-" + flags}}))
		_, span := m.Start(within, "started", trace.SpanKindClient, attrs)
		if sc := span.SpanContext(); sc.TraceID().String() != traceID || sc.SpanID().String() == spanID || sc.IsSampled() != (flags == "01") {
			t.Errorf("flags %s: the span is %+v", flags, sc)
		}
		span.End()
		m.Add(within, "added", now.Add(-time.Second), now, "failed", attrs)
	}
	for i, span := range kept.Await(t, "client started", "internal added") {
		if failed := span.Get("error.type") != nil; span.Get("keyway.worker") != "w1" || failed != (i == 1) {
			t.Errorf("%s says %v", span.Name, span.Attributes)
		}
	}
}

// Spans keep nothing of a request's memory, and not all that a client sends.
func TestAttributesOfRequests(t *testing.T) {
	for _, method := range []string{"GET", strings.Repeat("METHOD", 100)} {
		path := []byte("/" + strings.Repeat("a", 5000))
		all := spans.RequestAttributes(method, string(path))
		for _, a := range all {
			if n := len(a.Value.AsString()); n > 1024 {
				t.Errorf("%s has %d bytes", a.Key, n)
			}
		}
		name := spans.MethodName(method)
		if known := method == "GET"; known != (name == method) || !known && name != "HTTP" {
			t.Errorf("the name of %q is %q", method, name)
		}
		if names := slices.Collect(func(yield func(string) bool) {
			for _, a := range all {
				if !yield(string(a.Key)) {
					return
				}
			}
		}); !slices.Contains(names, "url.path") || slices.Contains(names, "http.request.method_original") != (method != "GET") {
			t.Errorf("%q: %v", method, names)
		}
	}
}
