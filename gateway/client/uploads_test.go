package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A client's calls keep bodies that nothing else can open again.
func TestClientUploads(t *testing.T) {
	const size = 300_000
	for _, tt := range []struct {
		name string
		body func() io.Reader
		// length is what is declared, -1 for none.
		length int64
		want   string // of the error
	}{
		{"unknown length", func() io.Reader { return io.LimitReader(site.Zeros{}, size) }, -1, ""},
		{"known length", func() io.Reader { return io.LimitReader(site.Zeros{}, size) }, size, ""},
		{"longer than it says", func() io.Reader { return io.LimitReader(site.Zeros{}, size) }, size - 1, "longer than"},
		{"shorter than it says", func() io.Reader { return io.LimitReader(site.Zeros{}, size) }, size + 1, "shorter than"},
		{"too large", func() io.Reader { return io.LimitReader(site.Zeros{}, 2*size) }, -1, "too large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var hits atomic.Int64
			a := site.NewFake(t, "a", func(rw http.ResponseWriter, r *http.Request) {
				if hits.Add(1) <= 2 {
					io.CopyN(io.Discard, r.Body, 10)
					site.Refuse("unavailable", 503)(rw, r)
					return
				}
				io.WriteString(rw, site.Sum(r.Body))
			})
			c := kit.Must(client.New(client.Config{Members: hub.Of(a.Member), Limits: gateway.Limits{MaxBody: size, BodyDir: t.TempDir()}}))
			defer c.Close()
			r := kit.Must(http.NewRequestWithContext(t.Context(), "POST", "/", tt.body()))
			r.ContentLength = tt.length
			r.Header.Set("Keyway-Key", "k")
			res, err := c.RoundTrip(r)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || hits.Load() != 0 {
					t.Errorf("%v after %d requests, want an error with %q", err, hits.Load(), tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if text, _ := io.ReadAll(res.Body); string(text) != site.Sum(io.LimitReader(site.Zeros{}, size)) {
				t.Errorf("the app got %s", text)
			}
		})
	}
}

// A call's body that does not come keeps the key free.
func TestClientUploadHoldsNoKey(t *testing.T) {
	eachClientWay(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		io.WriteString(rw, strconv.FormatInt(n, 10)+fmt.Sprint(err))
	}, func(t *testing.T, c *client.Client) {
		body, w := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			res, err := c.RoundTrip(keyed(t, "POST", "/", body).WithContext(ctx))
			if err == nil {
				res.Body.Close()
				err = errors.New("answered")
			}
			failed <- err
		}()
		if _, err := w.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if res, text := kit.Do(t, &http.Client{Transport: c}, keyed(t, "GET", "/", nil)); text != "0<nil>" {
			t.Errorf("a call that came meanwhile: %d %q", res.StatusCode, text)
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose context has ended: %v", err)
		}
	})
}
