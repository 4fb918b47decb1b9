package worker_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// One listener takes the link and plain HTTP, with the same meaning.
func TestServerTakesLinkAndHTTP(t *testing.T) {
	w := site.New(t, 16).StartReady(direct)
	addr := w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		rw.Header().Set("Keyway-Refused", "not-owner")
		rw.Header().Set("X-Held", fmt.Sprint(strings.HasPrefix(r.Header.Get("Baggage"), "a=1,keyway-held=")))
		rw.WriteHeader(http.StatusTeapot)
		fmt.Fprint(rw, key, r.Header.Get(gateway.HeaderToken) != "", r.Header.Get("Keyway-Forged"))
	})))
	const key = "a key/100%"
	want := key + "true"

	res, body := kit.Fetch(t, "http://"+addr, gateway.HeaderKey, url.PathEscape(key), "Baggage", "a=1", "Keyway-Forged", "x")
	if res.StatusCode != http.StatusTeapot || body != want || res.Header.Get("X-Held") != "true" || res.Header.Get("Keyway-Refused") != "" {
		t.Errorf("over HTTP: %d, %q, %v", res.StatusCode, body, res.Header)
	}

	client := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{Ring: w.Ring, TTL: kit.TTL}.Digest()}}
	defer client.Close()
	r := &link.Request{Method: "GET", Target: "/", Host: "x", Key: key}
	r.Fields = link.AppendField(link.AppendField(r.Fields, "baggage", "a=1"), "Keyway-Forged", "x")
	answer, err := client.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	h := answer.Fields.Header()
	if answer.Status != http.StatusTeapot || string(text) != want || h.Get("X-Held") != "true" || h.Get("Keyway-Refused") != "" {
		t.Errorf("over the link: %d, %q, %v", answer.Status, text, h)
	}
}

func TestServerRefusesOverLink(t *testing.T) {
	c := site.New(t, 16)
	owner := c.StartReady()
	w := c.Start(func(cfg *worker.Config) { cfg.Members = frozen{cfg.Members} })
	addr := w.Listen(t, w.Handler(http.NotFoundHandler()))
	client := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: c.Settings.Digest()}}
	defer client.Close()
	kit.Eventually(t, "the refusal names the owner", func() bool {
		_, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Key: "k"})
		refusal, ok := errors.AsType[*link.RefusedError](err)
		return ok && refusal.Reason == link.NotOwner && refusal.Owner == owner.Incarnation() && refusal.Addr == "w1:80" && refusal.Epoch > 0
	})
	answer, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Key: "bad\x00key"})
	if err != nil || answer.Status != http.StatusBadRequest {
		t.Errorf("a bad key: %v, %v", answer, err)
	}
}
