package tracing

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The numbers of fields in messages of OTLP 1.7 (opentelemetry/proto/trace/v1/trace.proto,
// common/v1/common.proto, resource/v1/resource.proto) that spans of the library can fill.
const (
	requestResourceSpans = 1 // ExportTraceServiceRequest

	resourceSpansResource   = 1 // ResourceSpans
	resourceSpansScopeSpans = 2
	resourceSpansSchema     = 3
	resourceAttributes      = 1 // Resource
	scopeSpansScope         = 1 // ScopeSpans
	scopeSpansSpans         = 2
	scopeSpansSchema        = 3
	scopeName               = 1 // InstrumentationScope
	scopeVersion            = 2
	scopeAttributes         = 3

	spanTraceID           = 1 // Span
	spanSpanID            = 2
	spanTraceState        = 3
	spanParentID          = 4
	spanName              = 5
	spanKind              = 6
	spanStart             = 7
	spanEnd               = 8
	spanAttributes        = 9
	spanDroppedAttributes = 10
	spanEvents            = 11
	spanDroppedEvents     = 12
	spanLinks             = 13
	spanDroppedLinks      = 14
	spanStatus            = 15
	spanFlags             = 16

	eventTime              = 1 // Span.Event
	eventName              = 2
	eventAttributes        = 3
	eventDroppedAttributes = 4

	linkTraceID           = 1 // Span.Link
	linkSpanID            = 2
	linkTraceState        = 3
	linkAttributes        = 4
	linkDroppedAttributes = 5
	linkFlags             = 6

	statusMessage = 2 // Status
	statusCode    = 3

	pairKey     = 1 // KeyValue
	pairValue   = 2
	valueString = 1 // AnyValue
	valueBool   = 2
	valueInt    = 3
	valueDouble = 4
	valueArray  = 5
	arrayValues = 1 // ArrayValue
)

// Bits of flags beside those of the Trace Context: whether a span's parent, or a link's span, is known
// to be of another process or of this one, and that it is of another.
const (
	flagKnowsRemote = 0x100
	flagRemote      = 0x200
)

// otlpStatus are the numbers of status codes, which are not those of the library.
var otlpStatus = map[codes.Code]uint64{codes.Ok: 1, codes.Error: 2}

// appendRequest appends an ExportTraceServiceRequest with spans, which are all of one resource.
func appendRequest(b []byte, spans []sdk.ReadOnlySpan) []byte {
	attrs, schema := spans[0].Resource().Attributes(), spans[0].Resource().SchemaURL()
	return appendMessage(b, requestResourceSpans, func(b []byte) []byte {
		b = appendMessage(b, resourceSpansResource, func(b []byte) []byte {
			return appendAttributes(b, resourceAttributes, attrs)
		})
		for len(spans) > 0 { // those of one scope that stand together
			scope, n := spans[0].InstrumentationScope(), 1
			for n < len(spans) && spans[n].InstrumentationScope() == scope {
				n++
			}
			b = appendMessage(b, resourceSpansScopeSpans, func(b []byte) []byte {
				b = appendMessage(b, scopeSpansScope, func(b []byte) []byte {
					b = appendText(appendText(b, scopeName, scope.Name), scopeVersion, scope.Version)
					return appendAttributes(b, scopeAttributes, scope.Attributes.ToSlice())
				})
				for _, s := range spans[:n] {
					b = appendMessage(b, scopeSpansSpans, func(b []byte) []byte { return appendSpan(b, s) })
				}
				return appendText(b, scopeSpansSchema, scope.SchemaURL)
			})
			spans = spans[n:]
		}
		return appendText(b, resourceSpansSchema, schema)
	})
}

func appendSpan(b []byte, s sdk.ReadOnlySpan) []byte {
	b = appendSpanContext(b, s.SpanContext(), spanTraceID, spanSpanID, spanTraceState)
	parent := s.Parent()
	if id := parent.SpanID(); id.IsValid() {
		b = appendBytes(b, spanParentID, id[:])
	}
	b = appendText(b, spanName, s.Name())
	b = appendUint(b, spanKind, uint64(s.SpanKind())) // the library's numbers are those of OTLP
	b = appendTime(b, spanStart, s.StartTime())
	b = appendTime(b, spanEnd, s.EndTime())
	b = appendAttributes(b, spanAttributes, s.Attributes())
	b = appendUint(b, spanDroppedAttributes, uint64(s.DroppedAttributes()))
	for _, e := range s.Events() {
		b = appendMessage(b, spanEvents, func(b []byte) []byte {
			b = appendText(appendTime(b, eventTime, e.Time), eventName, e.Name)
			b = appendAttributes(b, eventAttributes, e.Attributes)
			return appendUint(b, eventDroppedAttributes, uint64(e.DroppedAttributeCount))
		})
	}
	b = appendUint(b, spanDroppedEvents, uint64(s.DroppedEvents()))
	for _, l := range s.Links() {
		b = appendMessage(b, spanLinks, func(b []byte) []byte {
			b = appendSpanContext(b, l.SpanContext, linkTraceID, linkSpanID, linkTraceState)
			b = appendAttributes(b, linkAttributes, l.Attributes)
			b = appendUint(b, linkDroppedAttributes, uint64(l.DroppedAttributeCount))
			return appendFlags(b, linkFlags, l.SpanContext, l.SpanContext.IsRemote())
		})
	}
	b = appendUint(b, spanDroppedLinks, uint64(s.DroppedLinks()))
	if status := s.Status(); status.Code != codes.Unset {
		b = appendMessage(b, spanStatus, func(b []byte) []byte {
			return appendUint(appendText(b, statusMessage, status.Description), statusCode, otlpStatus[status.Code])
		})
	}
	return appendFlags(b, spanFlags, s.SpanContext(), parent.IsRemote())
}

func appendSpanContext(b []byte, sc trace.SpanContext, traceID, spanID, state protowire.Number) []byte {
	id, span := sc.TraceID(), sc.SpanID()
	b = appendBytes(appendBytes(b, traceID, id[:]), spanID, span[:])
	return appendText(b, state, sc.TraceState().String())
}

func appendFlags(b []byte, field protowire.Number, sc trace.SpanContext, remote bool) []byte {
	flags := uint32(sc.TraceFlags()) | flagKnowsRemote
	if remote {
		flags |= flagRemote
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), flags)
}

func appendAttributes(b []byte, field protowire.Number, attrs []attribute.KeyValue) []byte {
	for _, a := range attrs {
		b = appendMessage(b, field, func(b []byte) []byte {
			b = appendText(b, pairKey, string(a.Key))
			return appendMessage(b, pairValue, func(b []byte) []byte { return appendValue(b, a.Value) })
		})
	}
	return b
}

// appendValue appends the content of an AnyValue, in which a zero counts.
func appendValue(b []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.BOOL:
		return protowire.AppendVarint(protowire.AppendTag(b, valueBool, protowire.VarintType), protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		return protowire.AppendVarint(protowire.AppendTag(b, valueInt, protowire.VarintType), uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return protowire.AppendFixed64(protowire.AppendTag(b, valueDouble, protowire.Fixed64Type), math.Float64bits(v.AsFloat64()))
	case attribute.BOOLSLICE:
		return appendArray(b, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		return appendArray(b, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		return appendArray(b, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		return appendArray(b, v.AsStringSlice(), attribute.StringValue)
	}
	return appendString(b, valueString, v.Emit())
}

// appendArray appends the content of an AnyValue that has several.
func appendArray[T any](b []byte, list []T, value func(T) attribute.Value) []byte {
	return appendMessage(b, valueArray, func(b []byte) []byte {
		for _, one := range list {
			b = appendMessage(b, arrayValues, func(b []byte) []byte { return appendValue(b, value(one)) })
		}
		return b
	})
}

// appendMessage appends a message whose content fill appends. Most have less than 128 bytes, whose number is one byte;
// the content of others is moved behind theirs.
func appendMessage(b []byte, field protowire.Number, fill func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = fill(append(b, 0))
	size := uint64(len(b) - start - 1)
	if more := protowire.SizeVarint(size) - 1; more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[start+1+more:], b[start+1:])
	}
	protowire.AppendVarint(b[:start], size)
	return b
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// appendText appends a text, nothing for "".
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return appendString(b, field, text)
}

// appendString is appendText for one in which "" counts.
func appendString(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}

// appendUint appends a number, nothing for 0.
func appendUint(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendTime appends a time in nanoseconds since 1970.
func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(t.UnixNano()))
}
