package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/keyway-go/keyway/internal/wake"
)

// client sends spans by OTLP over HTTP. It implements [otlptrace.Client]. OpenTelemetry's own client links gRPC,
// which makes a program 11 MB larger (docs/decisions/own-or-library.md).
type client struct {
	*Config
	http http.Client
}

func newClient(c *Config) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = c.tls
	return &client{c, http.Client{Transport: transport, Timeout: c.timeout}}
}

func (c *client) Start(context.Context) error { return nil }
func (c *client) Stop(context.Context) error  { return nil }

// UploadTraces sends a batch. As long as the collector cannot take it now, UploadTraces tries again, until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // on the wire an ExportTraceServiceRequest
	if err != nil {
		return err
	}
	if c.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body) // memory does not fail
		w.Close()
		body = b.Bytes()
	}
	for pause := time.Second; ; pause = min(2*pause, 10*time.Second) {
		again, err := c.post(ctx, body)
		if !again {
			return err
		}
		if !wake.Sleep(pause, ctx.Done()) {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// post sends a batch once. It reports whether another try may succeed.
func (c *client) post(ctx context.Context, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	res, err := c.http.Do(r)
	if err != nil {
		late, ok := errors.AsType[net.Error](err)
		return ok && late.Timeout(), err
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	default:
		if res.StatusCode/100 == 2 {
			return false, nil
		}
	}
	return again, fmt.Errorf("%s answers %s: %.200q", c.endpoint.Redacted(), res.Status, answer)
}
