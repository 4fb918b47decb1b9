package router

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway/internal/spans"
)

// observeCall is [Router.observe] for a call of a client's own program.
func (x *call) observeCall() {
	c := x.client
	if c.spans == nil {
		return
	}
	x.observed = &progress{method: x.request.Method, key: x.request.Key, partition: x.partition}
	values := func(name string) []string { return x.in.Header[name] }
	x.observed.begin(c.spans, x.ctx, trace.SpanKindInternal, values, func() []attribute.KeyValue {
		return spans.RequestAttributes(x.request.Method, x.in.URL.EscapedPath())
	})
}

// endSpans ends the spans of a call that has ended with err, or with its answer.
func (x *call) endSpans(err error) {
	o := x.observed
	if o == nil || x.told.Swap(true) {
		return
	}
	status := x.out.StatusCode
	if err != nil {
		o.problem, status = failureOf(err), 0
	}
	o.spans.end(o, x.way, status)
}
