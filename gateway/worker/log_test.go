package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// What clients can bring about at will does not fill the log: of each kind there
// is a line every 10 s at most, and what the lines stand for adds up.
func TestClientsDoNotFillTheLog(t *testing.T) {
	failing := func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }
	breaking := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			http.ReadRequest(bufio.NewReader(far))
			far.Close()
		}()
		return near, nil
	}
	router := func(dial func(context.Context) (net.Conn, error)) func(*testing.T, *slog.Logger) http.Handler {
		return func(t *testing.T, l *slog.Logger) http.Handler {
			return site.NewRouter(t, router.Config{
				Members: hub.Of(site.Member("w1", "w1:80")), Limits: gateway.Limits{NoHold: true}, Keys: kit.KeySources(t, "header:X-Key"), Logger: l,
				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			})
		}
	}
	sidecar := func(dial func(context.Context) (net.Conn, error)) func(*testing.T, *slog.Logger) http.Handler {
		return func(t *testing.T, l *slog.Logger) http.Handler {
			w := site.New(t, 1).StartReady(func(cfg *worker.Config) {
				cfg.Keys, cfg.Logger = kit.KeySources(t, "header:X-Key"), l
			})
			return kit.Must(sidecar.Over(w.Worker, dial))
		}
	}
	for _, tt := range []struct {
		name    string
		handler func(*testing.T, *slog.Logger) http.Handler
		status  int
		message string
	}{
		{"nobody is reached", router(failing), 503, "no owner can be reached"},
		{"worker breaks off", router(breaking), 502, "the worker did not answer"},
		{"no app", sidecar(failing), 503, "the app cannot be reached"},
		{"app breaks off", sidecar(breaking), 502, "the app did not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := new(kit.Buffer)
				h := tt.handler(t, slog.New(slog.NewJSONHandler(logs, nil)))
				send := func() {
					r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
					r.Header.Set("X-Key", "k")
					rec := httptest.NewRecorder()
					h.ServeHTTP(rec, r)
					if rec.Code != tt.status {
						t.Errorf("%d %s", rec.Code, rec.Body)
					}
				}
				const failures = 2_000
				for range failures {
					send()
					time.Sleep(25 * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				send() // its line counts those of the last interval
				lines, stands := linesOf(t, logs.String(), tt.message)
				if lines < 2 || lines > 8 || stands != failures+1 {
					t.Errorf("%d lines that stand for %d failures of %d in a minute", lines, stands, failures)
				}
			})
		})
	}
}

// linesOf returns how many lines of the log have the message, and for how many
// of its kind they stand.
func linesOf(t *testing.T, logs, message string) (lines, stands int) {
	t.Helper()
	for line := range strings.Lines(logs) {
		var entry struct {
			Msg        string
			Level      slog.Level
			Suppressed int
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry.Level > slog.LevelInfo && entry.Msg != message && entry.Msg != "this worker leaves the ring until its app answers" {
			t.Errorf("%s", line)
		}
		if entry.Msg == message {
			lines++
			stands += 1 + entry.Suppressed
		}
	}
	return lines, stands
}

// What only the client has done is no warning, and nothing goes to the standard
// logger.
func TestBrokenUploadsAreNoWarnings(t *testing.T) {
	standard := new(kit.Buffer)
	defer log.SetOutput(log.Writer())
	log.SetOutput(standard)
	synctest.Test(t, func(t *testing.T) {
		logs := new(kit.Buffer)
		w := site.New(t, 1).StartReady(func(cfg *worker.Config) {
			cfg.Keys, cfg.Logger = kit.KeySources(t, "header:X-Key"), slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		var answers atomic.Bool // the app does, with half an answer; before, it only reads
		h := kit.Must(sidecar.Over(w.Worker, func(context.Context) (net.Conn, error) {
			near, far := net.Pipe()
			answers := answers.Load()
			go func() {
				r, err := http.ReadRequest(bufio.NewReader(far))
				switch {
				case err != nil:
				case answers:
					io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
				default:
					io.Copy(io.Discard, r.Body)
				}
				far.Close()
			}()
			return obeyed{near, far}, nil
		}))
		serve := func(r *http.Request) {
			defer func() { recover() }()
			r.Header.Set("X-Key", "k")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		serve(httptest.NewRequestWithContext(t.Context(), "POST", "/", io.MultiReader(strings.NewReader("half"), brokenReader{})))
		answers.Store(true)
		serve(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if got := logs.String() + standard.String(); got != "" {
			t.Errorf("%s", got)
		}
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the client has broken off") }

// obeyed is the connection to an app that ends its side as soon as the other has
// ended.
type obeyed struct {
	net.Conn
	app net.Conn
}

func (c obeyed) CloseWrite() error { return c.app.Close() }
