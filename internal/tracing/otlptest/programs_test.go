package otlptest_test

import (
	"net/http"
	"strings"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// What the real programs send is OTLP: a request's span and its attempt, of the router, and the execution, of the worker.
func TestPrograms(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	programs := kit.Must(cluster.Build(t.Context(), t.TempDir()))
	begin := func(name, program string, args ...string) *cluster.Process {
		p, err := cluster.Start(t.Context(), name, program, t.Output(), append(args, "--new-cluster", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0")...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	router := begin("router", programs.Router, "--admin", "127.0.0.1:0")
	begin("w1", programs.Worker, "--name", "w1", "--join", router.Gossip)
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+router.Listen+"/orders", strings.NewReader("body")))
	req.Header.Set("X-Key", "k")
	res := kit.Must(http.DefaultClient.Do(req))
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the request got %s", res.Status)
	}

	byName := make(map[string]*tracepb.Span)
	for _, r := range c.await(3) {
		byName[value(r.Resource.Attributes, "service.name").GetStringValue()+": "+spanOf(r).Name] = spanOf(r)
	}
	request, attempt, execution := byName["keyway-router: POST default"], byName["keyway-router: POST"], byName["keyway-worker: execution"]
	if request == nil || attempt == nil || execution == nil {
		t.Fatalf("the collector has %v", byName)
	}
	if request.Kind != tracepb.Span_SPAN_KIND_SERVER || attempt.Kind != tracepb.Span_SPAN_KIND_CLIENT || execution.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("the kinds are %v, %v and %v", request.Kind, attempt.Kind, execution.Kind)
	}
	const remote = uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	if attempt.Flags&remote != 0 || execution.Flags&remote == 0 || string(execution.ParentSpanId) != string(attempt.SpanId) || string(execution.TraceId) != string(request.TraceId) {
		t.Errorf("the execution is %v, after %v", execution, attempt)
	}
	if value(execution.Attributes, "keyway.token").GetIntValue() == 0 || value(request.Attributes, "url.path").GetStringValue() != "/orders" {
		t.Errorf("the request says %v, the execution %v", request.Attributes, execution.Attributes)
	}
}

// value returns an attribute, nil if there is none of that name.
func value(list []*commonpb.KeyValue, name string) *commonpb.AnyValue {
	for _, pair := range list {
		if pair.Key == name {
			return pair.Value
		}
	}
	return nil
}
