//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// awaitTime bounds [Await].
const awaitTime = time.Minute

var errLate = fmt.Errorf("not all keys are answered within %v", awaitTime)

// Await makes requests for the keys as cfg says, one after the other, until all of them in a row are
// answered with 200. Over HTTP/2 it does not wait.
func Await(ctx context.Context, cfg Config, keys []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTime, errLate)
	defer cancel()
	ask := askHTTP(&cfg)
	switch {
	case cfg.HTTP2:
		return nil
	case cfg.Link != nil:
		client := &link.Client{Addr: cfg.Addr, Config: cfg.Link.config()}
		defer client.Close()
		ask = func(ctx context.Context, key string) (int, error) {
			status, _, _, err := exchange(ctx, client, &cfg, key)
			return status, err
		}
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for good := 0; good < len(keys); {
		status, err := ask(ctx, keys[good])
		if err == nil && status == http.StatusOK {
			good++
			continue
		}
		good = 0
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err, errors.New(statusOf(status, nil)))
		}
	}
	return nil
}

// askHTTP returns a function that gets an answer over HTTP/1.1.
func askHTTP(cfg *Config) func(ctx context.Context, key string) (status int, err error) {
	url := "http://"
	if cfg.TLS {
		url = "https://"
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return func(ctx context.Context, key string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+cfg.Addr+cfg.Mix.Path, nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set(HeaderKey, key)
		res, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, errors.Join(err, res.Body.Close())
	}
}
