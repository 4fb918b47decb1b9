package send

import (
	"context"
	"syscall"
)

// Options of tcp(7) that package syscall does not name.
const (
	tcpUserTimeout = 18
	unackedLimit   = 10_000 // milliseconds
)

func limitUnacknowledged(_ context.Context, _, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, unackedLimit)
	})
	if control != nil {
		return control
	}
	return err
}
