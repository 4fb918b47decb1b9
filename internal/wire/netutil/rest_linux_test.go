package netutil_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// What has connected before is accepted, and nothing that comes later, which finds
// nobody in the end.
func TestCloseForNew(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			var config net.ListenConfig
			config.SetMultipathTCP(false)
			l, err := config.Listen(t.Context(), network, addr)
			if err != nil {
				t.Fatal(err)
			}
			early, err := net.Dial(network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer early.Close()
			rest := netutil.CloseForNew(l)
			if rest == nil {
				t.Fatal("nothing is left")
			}
			defer rest.Close()
			d := net.Dialer{Timeout: 100 * time.Millisecond}
			if late, err := d.Dial(network, l.Addr().String()); err == nil {
				late.Close()
				t.Error("a late one has connected")
			}
			conn, err := rest.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := early.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
				t.Error(n, err)
			}
			rest.Close()
			if late, err := net.Dial(network, l.Addr().String()); err == nil {
				late.Close()
				t.Error("somebody listens")
			}
		})
	}
}
