package router_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// BenchmarkHandlerOverLink is a request that a router sends to a worker's
// http.Handler, both ends of the link together.
func BenchmarkHandlerOverLink(b *testing.B) {
	c := site.New(b, 16)
	w := c.StartOwner()
	answer := []byte(`{"key":"4711","count":1}`)
	addr := w.Listen(b, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(gateway.HeaderKey) != "4711" {
			http.Error(rw, "bad key", http.StatusBadRequest)
			return
		}
		h := rw.Header()
		h["Content-Type"] = []string{"application/json"}
		h["Content-Length"] = []string{strconv.Itoa(len(answer))}
		_, _ = rw.Write(answer)
	})))
	client := &link.Client{Addr: addr, Config: link.Config{Cluster: "keyway", Digest: ring.Settings{Ring: c.Ring}.Digest()}}
	b.Cleanup(func() { client.Close() })
	var fields link.Fields
	for _, f := range [][2]string{
		{"Accept", "*/*"}, {"User-Agent", "bench/1.0 (linux; amd64)"}, {"X-Key", "4711"}, {"Forwarded", `for="127.0.0.1:40404";host="orders.example";proto=http`},
		{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", "orders.example"}, {"X-Forwarded-Proto", "http"},
	} {
		fields = link.AppendField(fields, f[0], f[1])
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Do(b.Context(), &link.Request{Method: "GET", Target: "/orders?id=4711", Host: "orders.example", Key: "4711", Fields: fields})
			if err != nil {
				b.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != int64(len(answer)) || err != nil {
				b.Errorf("%d bytes, status %d, %v", n, resp.Status, err)
				return
			}
			resp.Body.Close()
		}
	})
}
