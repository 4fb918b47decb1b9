package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// sender sends spans to a collector over HTTP (OTLP 1.7, section OTLP/HTTP).
type sender struct {
	cfg    *Config
	client *http.Client
}

func newSender(c *Config) *sender {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = c.tls
	return &sender{c, &http.Client{
		Transport: transport, Timeout: c.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Pauses between requests for one batch.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// export implements exporter. It sends a batch again that the collector could not take, until ctx
// ends.
func (s *sender) export(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	body := appendRequest(nil, spans)
	if s.cfg.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body) // to memory
		_ = w.Close()
		body = packed.Bytes()
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		after, again, err := s.post(ctx, body)
		if err == nil || !again {
			return err
		}
		retry := time.NewTimer(max(after, pause/2+rand.N(pause/2)))
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// maxAnswer is how much is read of a collector's answer, so that its connection can be used on.
const maxAnswer = 64 << 10

// post sends one request. again says that another one may be taken, in that time at the earliest.
func (s *sender) post(ctx context.Context, body []byte) (after time.Duration, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "keyway")
	if s.cfg.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range s.cfg.headers {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, true, err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	if res.StatusCode/100 == 2 {
		return 0, false, nil
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		after = time.Duration(min(max(seconds, 0), 3600)) * time.Second
	}
	return after, again, fmt.Errorf("tracing: the collector at %s answered with %s", s.cfg.endpoint.Redacted(), res.Status)
}
