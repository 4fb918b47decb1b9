//go:build unix && !linux

package sock

import (
	"errors"
	"syscall"
)

const supported = true

func read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

func peek(fd uintptr) (int, error) {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}

// hungUp does not see an end behind what has not been read.
func hungUp(fd uintptr) bool { return Look(fd) == Ended }

func acknowledge(uintptr) {}

func refuseNew(uintptr) {}

func acknowledged(uintptr) (uint64, error) { return 0, errors.ErrUnsupported }

func failure(uintptr) error { return errors.ErrUnsupported }
