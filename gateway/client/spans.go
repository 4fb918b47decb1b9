package client

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
)

// observeCall is [Router.observe] for a call of a client's own program.
func (x *call) observeCall() {
	c := x.client
	if c.spans == nil {
		return
	}
	x.Observed = &send.Progress{Method: x.Request.Method, Key: x.Request.Key, Partition: x.Partition}
	values := func(name string) []string { return x.in.Header[name] }
	x.Observed.Begin(c.spans, x.Ctx, trace.SpanKindInternal, values, func() []attribute.KeyValue {
		return spans.RequestAttributes(x.Request.Method, x.in.URL.EscapedPath())
	})
}

// endSpans ends the spans of a call that has ended with err, or with its answer.
func (x *call) endSpans(err error) {
	o := x.Observed
	if o == nil || x.told.Swap(true) {
		return
	}
	status := x.out.StatusCode
	if err != nil {
		o.Problem, status = send.FailureOf(err), 0
	}
	o.Spans.End(o, x.way, status)
}
