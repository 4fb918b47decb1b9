package sock_test

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// unacknowledged returns how many bytes that a socket has sent are not acknowledged.
func unacknowledged(t *testing.T, conn syscall.Conn) (n int32) {
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
		if errno != 0 {
			err = errno
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What has come is acknowledged when it is asked for, and not with the delay that the
// kernel likes.
func TestAcknowledge(t *testing.T) {
	fd, near, far := pair(t)
	for try := 0; ; try++ {
		if err := syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		waits := unacknowledged(t, far) > 0
		sock.Acknowledge(fd)
		if n := unacknowledged(t, far); n > 0 {
			t.Errorf("%d bytes are not acknowledged", n)
		}
		if waits {
			return
		}
		if try == 1000 {
			t.Fatal("the kernel never delays an acknowledgement")
		}
	}
}
