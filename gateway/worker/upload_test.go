package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A client of a worker's own port holds no key while it sends a body, whatever its
// length is, and what is not taken is not run.
func TestTrapASlowUploadHoldsNoKey(t *testing.T) {
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) {
		cfg.Direct, cfg.MaxBody, cfg.BodyFiles, cfg.BodyDir = true, 400_000, 250_000, t.TempDir()
	})
	base := "http://" + w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, r.Method, " ", r.ContentLength, " ", n, err, r.Trailer)
	})))
	request := func(method string, body io.Reader, length int64) *http.Request {
		r := kit.Must(http.NewRequestWithContext(t.Context(), method, base, body))
		r.ContentLength = length
		r.Header.Set("Keyway-Key", "k")
		r.Header.Set("Content-Type", "application/grpc") // which the worker's handler was not said to take
		return r
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		client := kit.Client(t, proto)
		for _, size := range []int64{10, 300_000} {
			for _, length := range []int64{size, -1} {
				body, out := io.Pipe()
				answered := make(chan string, 1)
				go func() {
					res, err := client.Do(request("POST", body, length))
					if err != nil {
						answered <- err.Error()
						return
					}
					defer res.Body.Close()
					text, _ := io.ReadAll(res.Body)
					answered <- string(text)
				}()
				if _, err := out.Write(make([]byte, size-1)); err != nil {
					t.Fatal(err)
				}
				if _, text := kit.Do(t, client, request("GET", nil, 0)); text != "GET 0 0 <nil> map[]" {
					t.Errorf("%s, %d bytes: a request that came meanwhile: %q", proto, size, text)
				}
				if _, err := out.Write(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				out.Close()
				if text, want := <-answered, fmt.Sprint("POST ", size, " ", size, " <nil> map[]"); text != want {
					t.Errorf("%s: answered %q, want %q", proto, text, want)
				}
			}
		}
		for size, want := range map[int]int{400_001: 413, 399_999: 503} {
			if res, text := kit.Do(t, client, request("POST", bytes.NewReader(make([]byte, size)), int64(size))); res.StatusCode != want {
				t.Errorf("%s, %d bytes: %d %q, want %d", proto, size, res.StatusCode, text, want)
			}
		}
		r := request("POST", io.MultiReader(bytes.NewReader(make([]byte, 100_000))), -1)
		r.Trailer = http.Header{"X-Sum": {"7"}}
		if _, text := kit.Do(t, client, r); text != "POST -1 100000 <nil> map[X-Sum:[7]]" {
			t.Errorf("%s, with trailers: %q", proto, text)
		}
	}
}

// A client of a worker's own port that stops within a body with its key is answered: its connection
// does not wait for it for as long as it likes.
func TestTrapABodyWithAKeyIsNotWaitedForForever(t *testing.T) {
	w := site.New(t, 16).StartReady(func(cfg *worker.Config) {
		cfg.Direct, cfg.Keys = true, kit.KeySources(t, "json:/id")
	})
	h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request ran") }))
	rw := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	body := io.MultiReader(strings.NewReader(`{"id":`), readerFunc(func([]byte) (int, error) {
		if rw.deadline.IsZero() {
			return 0, errors.New("the wait has no deadline")
		}
		return 0, os.ErrDeadlineExceeded
	}))
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", body)
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(rw, r)
	if rw.Code != http.StatusRequestTimeout || rw.Header().Get("Connection") != "close" {
		t.Errorf("%d %q %q, want 408 and the connection closed", rw.Code, rw.Header(), rw.Body)
	}
}

type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetReadDeadline(t time.Time) error { w.deadline = t; return nil }
