package tracing

import (
	"context"
	"encoding/json"
	"io"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// console writes spans as lines of JSON. It implements [sdk.SpanExporter].
type console struct{ w io.Writer }

// line is a span as the console has it.
type line struct {
	Start      time.Time      `json:"start"`
	Duration   float64        `json:"duration_ms"`
	Trace      string         `json:"trace"`
	Span       string         `json:"span"`
	Parent     string         `json:"parent,omitempty"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name"`
	Status     string         `json:"status,omitempty"`
	Attributes map[string]any `json:"attributes,omitempty"`
	Links      []string       `json:"links,omitempty"`
}

func (c console) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	enc := json.NewEncoder(c.w)
	for _, s := range spans {
		l := line{
			Start: s.StartTime().UTC(), Duration: float64(s.EndTime().Sub(s.StartTime())) / float64(time.Millisecond),
			Trace: s.SpanContext().TraceID().String(), Span: s.SpanContext().SpanID().String(),
			Kind: s.SpanKind().String(), Name: s.Name(), Status: s.Status().Description, Attributes: make(map[string]any),
		}
		if parent := s.Parent().SpanID(); parent.IsValid() {
			l.Parent = parent.String()
		}
		for _, a := range s.Attributes() {
			l.Attributes[string(a.Key)] = a.Value.AsInterface()
		}
		for _, other := range s.Links() {
			l.Links = append(l.Links, other.SpanContext.TraceID().String()+"-"+other.SpanContext.SpanID().String())
		}
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

func (console) Shutdown(context.Context) error { return nil }
