package spantest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

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

var errMessage = errors.New("no message of protobuf")

// parts returns the values of a message's field that have a length.
func parts(message []byte, field protowire.Number) (values [][]byte, err error) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, errMessage
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return nil, errMessage
		}
		if number == field && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(message[n:])
			values = append(values, v)
		}
		message = message[n+size:]
	}
	return values, nil
}

// below returns the values at the end of a path of fields.
func below(message []byte, path ...protowire.Number) ([][]byte, error) {
	level := [][]byte{message}
	for _, field := range path {
		var next [][]byte
		for _, m := range level {
			values, err := parts(m, field)
			if err != nil {
				return nil, err
			}
			next = append(next, values...)
		}
		level = next
	}
	return level, nil
}

// decode returns the spans of an ExportTraceServiceRequest, whose fields' numbers are those of OTLP 1.7.
func decode(body []byte) (all []Sent, err error) {
	resources, err := below(body, 1)
	for _, r := range resources {
		service := ""
		attrs, failed := below(r, 1, 1)
		err = errors.Join(err, failed)
		for _, a := range attrs {
			if key, _ := below(a, 1); len(key) == 1 && string(key[0]) == "service.name" {
				value, _ := below(a, 2, 1)
				service = string(slices.Concat(value...))
			}
		}
		spans, failed := below(r, 2, 2)
		err = errors.Join(err, failed)
		for _, span := range spans {
			text := func(field protowire.Number) []byte {
				v, failed := below(span, field)
				err = errors.Join(err, failed)
				return slices.Concat(v...)
			}
			all = append(all, Sent{Service: service, Name: string(text(5)), Trace: hex.EncodeToString(text(1)), ID: hex.EncodeToString(text(2)), Parent: hex.EncodeToString(text(4))})
		}
	}
	return all, err
}
