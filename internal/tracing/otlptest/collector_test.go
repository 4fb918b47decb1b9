package otlptest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// collector takes spans by OTLP over HTTP. What is not of OTLP fails its test.
type collector struct {
	*httptest.Server
	t testing.TB

	mu    sync.Mutex
	spans []*tracepb.ResourceSpans // of one span each; guarded by mu
}

func newCollector(t testing.TB) *collector {
	c := &collector{t: t}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements [http.Handler]. What is posted is an ExportTraceServiceRequest, which TracesData is
// equal to on the wire.
func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	data := new(tracepb.TracesData)
	if err = errors.Join(err, proto.Unmarshal(body, data), known(data)); err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, single(data.ResourceSpans)...)
}

// await waits for that many spans, and returns all that there are, each with its resource and its scope.
func (c *collector) await(n int) (all []*tracepb.ResourceSpans) {
	c.t.Helper()
	kit.Eventually(c.t, fmt.Sprintf("the collector has %d spans", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		all = slices.Clone(c.spans)
		return len(all) >= n
	})
	return all
}

// known returns an error if a message has fields that its type has not.
func known(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		if at, ok := p.Index(-1).Value.Interface().(protoreflect.Message); ok && len(at.GetUnknown()) > 0 {
			return fmt.Errorf("%v has unknown fields: %x", p.Path, at.GetUnknown())
		}
		return nil
	})
}

// single returns each span by itself.
func single(all []*tracepb.ResourceSpans) (spans []*tracepb.ResourceSpans) {
	for _, r := range all {
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				spans = append(spans, &tracepb.ResourceSpans{
					Resource: r.Resource, SchemaUrl: r.SchemaUrl,
					ScopeSpans: []*tracepb.ScopeSpans{{Scope: scope.Scope, SchemaUrl: scope.SchemaUrl, Spans: []*tracepb.Span{s}}},
				})
			}
		}
	}
	return spans
}

// spanOf returns the span of what single returns.
func spanOf(r *tracepb.ResourceSpans) *tracepb.Span { return r.ScopeSpans[0].Spans[0] }
