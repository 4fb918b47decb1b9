package trial

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
// executions of a key overlap, and the observer notices it.
func TestFrontThatFreesTheKeyOfAClientThatLeftIsFound(t *testing.T) {
	o := NewObserver()
	defer o.Close()
	app, err := o.Listen("w1#1", "tcp", "127.0.0.1:0")
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
		r.Header.Set("Keyway-Key", r.Header.Get(HeaderKey))
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
	l := &Load{Dial: To(strings.TrimPrefix(front.URL, "http://")), Now: o.Now, Clients: 4}
	l.Jobs = func(int) func() (Job, time.Duration) {
		return func() (Job, time.Duration) {
			if _, _, found := o.Counts(); found[Overlap] > 0 || l.Done.Load() > 500 {
				cancel()
			}
			return Job{Key: "k", Work: 50 * time.Millisecond, stay: 5 * time.Millisecond, limit: time.Second}, 0
		}
	}
	l.Run(ctx)
	if _, _, found := o.Counts(); found[Overlap] == 0 {
		t.Errorf("no overlap in %d requests", l.Done.Load())
	}
}
