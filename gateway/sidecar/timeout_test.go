package sidecar_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// status sends a request and returns the status of the answer to it.
type status func(t *testing.T, s *sidecarSite, key string) int

func statusOverLink(t *testing.T, s *sidecarSite, key string) int {
	res, err := s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.Status == http.StatusGatewayTimeout && strings.Contains(string(body), "http://") {
		t.Errorf("the client reads %q", body)
	}
	return res.Status
}

func statusOverHTTP(t *testing.T, s *sidecarSite, key string) int {
	c := s.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+gateway.HeaderKey+": "+key+"\r\n\r\n")
	defer c.Close()
	answer, _ := io.ReadAll(c)
	for strings.HasPrefix(string(answer), "HTTP/1.1 1") {
		_, rest, _ := strings.Cut(string(answer), "\r\n\r\n")
		answer = []byte(rest)
	}
	code := 0
	fmt.Sscanf(string(answer), "HTTP/1.1 %d", &code)
	return code
}

// An app that does not answer holds its key for Limits.Timeout, and until it has
// closed the connection, or for the grace.
func TestTrapSilentAppIsGivenUp(t *testing.T) {
	const timeout, grace = 10 * time.Second, 1500 * time.Millisecond
	for name, tt := range map[string]struct {
		answer, chat string
		status       int
	}{
		"nothing":         {status: http.StatusGatewayTimeout},
		"interim answers": {chat: "HTTP/1.1 102 Processing\r\n\r\n", status: http.StatusGatewayTimeout},
		"no status":       {answer: "HTTP/1.1 000 X\r\n\r\n", status: http.StatusBadGateway},
		"half a head":     {answer: "HTTP/1.1 200 OK\r\n", status: http.StatusGatewayTimeout},
		"half a body":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", status: http.StatusOK},
		"endless body":    {answer: "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", chat: "data: 1\n\n", status: http.StatusOK},
	} {
		for way, ask := range map[string]status{"link": statusOverLink, "HTTP": statusOverHTTP} {
			for _, obeys := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", way, ", obeys ", obeys), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						app := startStubbornApp(t)
						app.answer, app.chat, app.chatter, app.obeys = tt.answer, tt.chat, time.Second, obeys
						if tt.chat == "" {
							app.chatter = 0
						}
						s := startSidecar(t, site.New(t, 16), app, func(cfg *worker.Config) { cfg.Timeout = timeout })
						s.AwaitServing(t, 16)
						var wg sync.WaitGroup
						wg.Go(func() {
							if got := ask(t, s, "k"); got != tt.status && (got != 0 || tt.status != http.StatusOK) { // or nothing of an answer that broke off
								t.Errorf("the client got status %d, want %d", got, tt.status)
							}
						})
						<-app.entered
						s.until(t, "k")
						wg.Wait()
						app.end()
						synctest.Wait()
						app.mu.Lock()
						first, second := app.visits[0], app.visits[1]
						app.mu.Unlock()
						end := timeout
						if tt.status == http.StatusBadGateway {
							end = 0
						}
						if !obeys {
							end += grace
						}
						if held := second.from.Sub(first.from); held < end || held > end+200*time.Millisecond {
							t.Errorf("the next request reached the app %v after the first, want %v", held, end)
						}
						if obeys && second.from.Before(first.to) {
							t.Error("the next request reached the app before it had closed the connection")
						}
						logs := s.logs.String()
						if strings.Contains(logs, "level=ERROR") == obeys {
							t.Errorf("the app obeys %v: %s", obeys, logs)
						}
						if tt.status != http.StatusBadGateway && (!strings.Contains(logs, "--timeout") || !strings.Contains(logs, "key=k") || !strings.Contains(logs, "token=")) {
							t.Errorf("what happened is not logged: %s", logs)
						}
					})
				})
			}
		}
	}
}
