package link

import (
	"context"
	"net"
	"sync"
	"testing"
)

// TestResetProvesNothing: what a reset has overtaken is lost.
func TestResetProvesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		network, listen string
		reset           bool
		want            error
	}{
		"end":                   {"tcp", "127.0.0.1:0", false, ErrNotStarted},
		"reset":                 {"tcp", "127.0.0.1:0", true, ErrLost},
		"end, in a file system": {"unix", t.TempDir() + "/s", false, ErrNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen(tc.network, tc.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c := &Client{Config: logless(), Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, tc.network, l.Addr().String())
			}}
			defer c.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				nc, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				l.Close()
				defer nc.Close()
				peer := newFakePeer(nc)
				peer.handshake(t)
				peer.frame(t)
				peer.write(t, serverFrame('w'))
				if tcp, ok := nc.(*net.TCPConn); ok && tc.reset {
					tcp.SetLinger(0)
				}
			})
			_, err = c.Do(t.Context(), &Request{Method: "GET", Target: "/", Host: "h"})
			want(t, err, tc.want)
			if tc.want == ErrLost {
				wantNot(t, err, ErrNotStarted)
			}
		})
	}
}
