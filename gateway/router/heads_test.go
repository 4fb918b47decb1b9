package router_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
)

// A head of the app's that is larger than the way takes is not the client's
// fault.
func TestTooLargeAnswerHead(t *testing.T) {
	large := strings.Repeat("x", 2<<20)
	app := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Large", large)
	}
	check := func(t *testing.T, e entrance) {
		got := e.send(t, "GET", "/", nil, "")
		status, rest, _ := strings.Cut(got, "\n")
		if !strings.Contains(status, "502") || len(rest) > 500 || strings.Contains(got, "127.0.0.1") {
			t.Errorf("%.600s", got)
		}
	}
	for _, e := range entrances(t, app, nil) {
		if strings.HasPrefix(e.name, "handler, own port") {
			continue // has no limit
		}
		t.Run(e.name, func(t *testing.T) { check(t, e) })
	}
	// A worker that does not know what the router takes.
	rt, _ := throughLink(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Large", large[:100<<10])
	}, func(cfg *router.Config) {
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &boastingConn{Conn: c}, err
		}
	})
	for _, e := range routerEntrancesOf(t, "unaware worker", rt) {
		t.Run(e.name, func(t *testing.T) { check(t, e) })
	}
}

// boastingConn makes the limit of heads in a router's settings 2 MiB.
type boastingConn struct {
	net.Conn
	writes int
}

func (c *boastingConn) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 2 { // after hello
		p = bytes.Replace(p, []byte("\x80\x80\x04"), []byte("\xff\xff\x7f"), 1)
	}
	return c.Conn.Write(p)
}
