package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// BenchmarkSidecarOverLink is a request over the link that a sidecar sends on to an app
// on a Unix socket. What it allocates includes the link's client.
func BenchmarkSidecarOverLink(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkSidecar(b, nil) })
	b.Run("rate", func(b *testing.B) {
		benchmarkSidecar(b, (&policy.Policy{Route: "orders", Rate: policy.Rate{PerSecond: 1e6, Burst: 1e6}}).Append(nil))
	})
}

// BenchmarkSidecarHotKey is a request of many that wait for one key.
func BenchmarkSidecarHotKey(b *testing.B) {
	do := newSidecarBench(b, nil)
	b.SetParallelism(256 / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchmarkSidecar(b *testing.B, asked []byte) {
	do := newSidecarBench(b, asked)
	b.ReportAllocs()
	for b.Loop() {
		if err := do(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// newSidecarBench starts a sidecar before an app and returns what makes a request.
func newSidecarBench(b *testing.B, asked []byte) func(context.Context) error {
	c := site.New(b, 16)
	w := c.StartOwner()
	socket := filepath.Join(b.TempDir(), "app")
	app, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { app.Close() })
	go serveRaw(app, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
	h, err := sidecar.New(w.Worker, &url.URL{Scheme: "unix", Path: socket})
	if err != nil {
		b.Fatal(err)
	}
	client := &link.Client{Addr: w.Listen(b, h), Config: link.Config{Cluster: "keyway", Digest: c.Settings.Digest()}}
	b.Cleanup(func() { client.Close() })
	var fields link.Fields
	for _, f := range [][2]string{
		{"Accept", "*/*"}, {"User-Agent", "bench/1.0 (linux; amd64)"}, {"X-Key", "4711"}, {"Forwarded", `for="127.0.0.1:40404";host="orders.example";proto=http`},
		{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", "orders.example"}, {"X-Forwarded-Proto", "http"},
	} {
		fields = link.AppendField(fields, f[0], f[1])
	}
	return func(ctx context.Context) error {
		resp, err := client.Do(ctx, &link.Request{Method: "GET", Target: "/orders?id=4711", Host: "orders.example", Key: "4711", Fields: fields, Policy: asked})
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); n != 2 || err != nil {
			return fmt.Errorf("%d bytes, status %d, %w", n, resp.Status, err)
		}
		return nil
	}
}

// serveRaw answers whatever comes on a connection.
func serveRaw(l net.Listener, answer string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			in := make([]byte, 4<<10)
			for {
				if _, err := conn.Read(in); err != nil {
					return
				}
				if _, err := io.WriteString(conn, answer); err != nil {
					return
				}
			}
		}()
	}
}
