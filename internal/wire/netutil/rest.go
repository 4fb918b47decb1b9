package netutil

import (
	"net"
	"os"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// CloseForNew closes l and returns a listener for the connections that are on their way to it:
// closing l alone would reset connections that were not accepted. New connections are refused. On
// Linux, TCP first ignores them and refuses them when they retry a second later (see
// [sock.RefuseNew]; not for Multipath TCP). CloseForNew returns nil if l is no socket. The caller
// closes the returned listener when no more connections arrive.
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
