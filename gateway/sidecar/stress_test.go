package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Uploads that break off at any moment, over the link and over HTTP, never let
// two requests of a key into the app.
func TestUploadsBrokenOffDoNotOverlap(t *testing.T) {
	var mu sync.Mutex
	running, entered := make(map[string]int), 0
	app := site.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(gateway.HeaderKey)
		mu.Lock()
		if running[key]++; running[key] > 1 {
			t.Errorf("%d requests of %s are with the app", running[key], key)
		}
		entered++
		mu.Unlock()
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			time.Sleep(rand.N(5 * time.Millisecond)) // it undoes what it has done
		}
		mu.Lock()
		running[key]--
		mu.Unlock()
	}))
	c := site.New(t, 16)
	w := c.StartReady(func(cfg *worker.Config) { cfg.Direct = true })
	addr := w.Listen(t, kit.Must(sidecar.New(w.Worker, kit.Must(url.Parse(app.URL)))))
	links := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: c.Settings.Digest()}}
	defer links.Close()

	piece := strings.Repeat("x", 8<<10)
	overHTTP := func(key string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\n", gateway.HeaderKey, key)
		for range rand.N(20) {
			fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece)
			time.Sleep(rand.N(time.Millisecond))
		}
	}
	overLink := func(key string) {
		ctx, leave := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
		defer leave()
		body, more := io.Pipe()
		go func() {
			for range rand.N(20) {
				io.WriteString(more, piece)
			}
			more.CloseWithError(io.ErrUnexpectedEOF)
		}()
		res, err := links.Do(ctx, &link.Request{Method: "POST", Target: "/", Host: "x", Key: key, Body: body, ContentLength: -1})
		if err == nil {
			res.Body.Close()
		}
		body.Close()
	}
	whole := func(key string) { kit.Fetch(t, "http://"+addr, gateway.HeaderKey, key) }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 40 {
				[]func(string){overHTTP, overLink, whole}[rand.N(3)](fmt.Sprint("k", rand.N(3)))
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if entered < 50 {
		t.Errorf("only %d requests reached the app", entered)
	}
}
