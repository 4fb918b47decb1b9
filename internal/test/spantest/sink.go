package spantest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// Sink is a collector that takes spans by OTLP over HTTP.
type Sink struct {
	*httptest.Server
	t testing.TB

	mu   sync.Mutex
	sent []Sent // guarded by mu
}

// Sent is a span that a Sink has got.
type Sent struct {
	Path                    string // to which it was sent
	Service                 string // the resource's service.name
	Name, Trace, ID, Parent string // ids in hex; no Parent is ""
}

// NewSink starts a Sink that runs until the test ends.
func NewSink(t testing.TB) *Sink {
	s := &Sink{t: t}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Sink) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var all []Sent
	if err == nil {
		all, err = decode(body)
	}
	if err != nil {
		s.t.Errorf("spantest: %s %s: %v", r.Method, r.URL, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range all {
		one.Path = r.URL.Path
		s.sent = append(s.sent, one)
	}
}

// Await waits for that many spans, and returns all that there are.
func (s *Sink) Await(t testing.TB, n int) (all []Sent) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("the collector has %d spans", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		all = slices.Clone(s.sent)
		return len(all) >= n
	})
	return all
}

// decode returns the spans of an ExportTraceServiceRequest, which TracesData is on the wire.
func decode(body []byte) (all []Sent, err error) {
	var data tracepb.TracesData
	err = proto.Unmarshal(body, &data)
	for _, r := range data.ResourceSpans {
		service := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, Sent{Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId)})
			}
		}
	}
	return all, err
}
