package router_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// mortal starts a worker of the link that dies of requests, after calling before, and tells what it hears of other deaths.
func mortal(t *testing.T, name string, heard chan<- string, before func()) ring.Member {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	s := &link.Server{Config: link.Config{Cluster: "keyway", Digest: ring.Settings{TTL: kit.TTL}.Digest()}}
	s.Handler = link.HandlerFunc(func(w *link.ResponseWriter, r *link.ServerRequest) {
		if r.Method == calls.Accuse {
			heard <- string(kit.Must(io.ReadAll(r.Body)))
			w.WriteHead(http.StatusOK, 0, nil)
			return
		}
		before()
		go s.Close()
		<-r.Context().Done()
	})
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	m := site.Member(name, l.Addr().String())
	m.Link = true
	return m
}

// A router tells another worker which keys were under way at a worker whose connection broke, unless that worker leaves.
func TestAccusations(t *testing.T) {
	heard := make(chan string, 10)
	var c *hub.Handle
	var leaves, dies, lives ring.Member
	leaves = mortal(t, "leaves", heard, func() { c.Set(site.Leaving(leaves), dies, lives) })
	dies = mortal(t, "dies", heard, func() {})
	lives = mortal(t, "lives", heard, func() {})
	c = hub.Of(leaves, dies, lives)
	rt := site.NewRouter(t, router.Config{Members: c})
	next := 0
	kill := func(name string) (key string) {
		for ; ; next++ {
			key = fmt.Sprint("k", next)
			if owner, _ := c.View().Owner(ring.Config{}.Partition(key)); owner.Name == name {
				break
			}
		}
		r := httptest.NewRequest("GET", "http://shop.example/", nil)
		r.Header.Set("X-Key", key)
		rec := httptest.NewRecorder()
		if rt.ServeHTTP(rec, r); rec.Code != http.StatusBadGateway {
			t.Fatalf("status %d", rec.Code)
		}
		return key
	}
	kill("leaves")
	key := kill("dies")
	var text string
	select {
	case text = <-heard:
	case <-time.After(10 * time.Second):
	}
	b, err := suspects.Parse(text)
	if err != nil || len(b.Deaths) != 1 || b.Deaths[0].Worker != dies.Incarnation || len(b.Deaths[0].Keys) != 1 || b.Deaths[0].Keys[0] != suspects.Hash(key) {
		t.Errorf("%q, %v: want %s accused of %x alone", text, err, dies.Incarnation, suspects.Hash(key))
	}
}
