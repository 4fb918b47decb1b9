package netutil

import (
	"net"
	"os"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// CloseForNew closes l, and returns a listener of the connections to it that are on their
// way: closing l alone resets those that nobody has accepted. Who connects from now on
// is refused; one of TCP on Linux is ignored first, and refused when he tries again a
// second later (see [sock.RefuseNew]; not on sockets of Multipath TCP). It
// returns nil if l is no socket. The caller closes what it returns, once nothing comes.
func CloseForNew(l net.Listener) net.Listener {
	defer l.Close()
	socket, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil
	}
	f, err := socket.File()
	if err != nil {
		return nil
	}
	defer f.Close()
	if raw, err := f.SyscallConn(); err == nil && l.Addr().Network() == "tcp" {
		_ = raw.Control(sock.RefuseNew)
	}
	l.Close() // a socket in the file system is not found from now on
	rest, err := net.FileListener(f)
	if err != nil {
		return nil
	}
	return rest
}
