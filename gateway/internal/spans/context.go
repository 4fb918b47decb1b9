// Package spans is the common part of traces (OpenTelemetry) in routers, clients and workers.
// context.go reads and writes the header fields that carry them between processes, the Trace
// Context of W3C (https://www.w3.org/TR/trace-context). spans.go makes spans and their attributes.
package spans

import (
	"context"
	"encoding/hex"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// The fields of the Trace Context.
const (
	parentField = "Traceparent"
	stateField  = "Tracestate"
)

// IsField reports whether a field of that name, in any case, is one of the Trace Context.
func IsField(name string) bool {
	return len(name) == len(parentField) && strings.EqualFold(name, parentField) ||
		len(name) == len(stateField) && strings.EqualFold(name, stateField)
}

// Parse returns the span whose process has sent a request, as its fields say; not valid if there is
// no good one. values returns the values of a field, whose memory Parse does not keep.
func Parse(values func(name string) []string) trace.SpanContext {
	cfg, ok := parseParent(values(parentField))
	if !ok {
		return trace.SpanContext{}
	}
	if list := values(stateField); len(list) > 0 {
		if state, err := trace.ParseTraceState(strings.Clone(strings.Join(list, ","))); err == nil {
			cfg.TraceState = state
		}
	}
	return trace.NewSpanContext(cfg)
}

// TraceID returns the trace of a request with these values of the field Traceparent, as a part of
// them; "" if there is no good one.
func TraceID(values []string) string {
	if _, ok := parseParent(values); !ok {
		return ""
	}
	return values[0][3:35]
}

// parseParent returns what a Traceparent with these values says. Later versions than 00 may have more behind it.
func parseParent(values []string) (cfg trace.SpanContextConfig, ok bool) {
	const length = len("00-") + 2*16 + len("-") + 2*8 + len("-00")
	if len(values) != 1 || len(values[0]) < length {
		return cfg, false
	}
	text, more := values[0][:length], values[0][length:]
	version, flags := text[:2], text[length-2:]
	id, badID := trace.TraceIDFromHex(text[3:35])
	span, badSpan := trace.SpanIDFromHex(text[36:52])
	bits, _ := strconv.ParseUint(flags, 16, 8)
	ok = text[2] == '-' && text[35] == '-' && text[52] == '-' && badID == nil && badSpan == nil &&
		version != "ff" && strings.Trim(version+flags, "0123456789abcdef") == "" && (more == "" || version != "00" && more[0] == '-')
	return trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(bits) & trace.FlagsSampled, Remote: true}, ok
}

// Fields yields the fields that carry sc in a request.
func Fields(sc trace.SpanContext) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if !sc.IsValid() {
			return
		}
		id, span := sc.TraceID(), sc.SpanID()
		var memory [55]byte
		b := hex.AppendEncode(append(memory[:0], "00-"...), id[:])
		b = hex.AppendEncode(append(b, '-'), span[:])
		b = hex.AppendEncode(append(b, '-'), []byte{byte(sc.TraceFlags() & trace.FlagsSampled)})
		if !yield(parentField, string(b)) {
			return
		}
		if state := sc.TraceState().String(); state != "" {
			yield(stateField, state)
		}
	}
}

// SetFields gives a header the fields of sc in place of others.
func SetFields(h http.Header, sc trace.SpanContext) {
	delete(h, parentField)
	delete(h, stateField)
	for name, value := range Fields(sc) {
		h[name] = []string{value}
	}
}

// Within returns the parent context for a request's spans: ctx itself if it has a span, as under a
// server that makes spans, or else one with the span of the request's sender.
func Within(ctx context.Context, values func(name string) []string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	if sc := Parse(values); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}
