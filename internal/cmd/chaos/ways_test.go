package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A front that takes an app's work for ended when the client has left lets two
// executions of a key overlap, and the observer notices it. (With a tunnel the
// ReverseProxy of this test waits for the app by itself.)
func TestFrontThatFreesTheKeyOfAClientThatLeftIsFound(t *testing.T) {
	for _, w := range []way{upload, uploadH2, eventStream} {
		t.Run(w.String(), func(t *testing.T) {
			o := newObserver()
			defer o.close()
			app, err := o.listen("w1#1")
			if err != nil {
				t.Fatal(err)
			}
			target, err := url.Parse(app)
			if err != nil {
				t.Fatal(err)
			}
			var key sync.Mutex
			token := 0
			proxy := &httputil.ReverseProxy{
				Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
				ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
			}
			front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key.Lock()
				defer key.Unlock()
				token++
				r.Header.Set("Keyway-Key", r.Header.Get(headerKey))
				r.Header.Set("Keyway-Token", strconv.Itoa(token))
				r.Header.Set("Keyway-Partition", "0")
				proxy.ServeHTTP(w, r)
			}))
			front.Config.Protocols = new(http.Protocols)
			front.Config.Protocols.SetHTTP1(true)
			front.Config.Protocols.SetUnencryptedHTTP2(true)
			front.Start()
			defer front.Close()

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &load{target: strings.TrimPrefix(front.URL, "http://"), now: o.now, clients: 4}
			l.jobs = func(int) func() (job, time.Duration) {
				return func() (job, time.Duration) {
					if _, _, found := o.counts(); found[overlap] > 0 || l.done.Load() > 500 {
						cancel()
					}
					return job{key: "k", way: w, work: 50 * time.Millisecond, stay: 5 * time.Millisecond, limit: time.Second}, 0
				}
			}
			l.run(ctx)
			if _, _, found := o.counts(); found[overlap] == 0 {
				t.Errorf("no overlap in %d requests: %+v", l.done.Load(), usage(l.requests(), o.record())[w])
			}
		})
	}
}
