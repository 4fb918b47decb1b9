//go:build linux

// Package rawio reads and writes sockets that do not block, without telling
// the scheduler, which halves the cost of a call here.
package rawio

import (
	"syscall"
	"unsafe"
)

// Read is read(2).
func Read(fd int, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

// Write is write(2).
func Write(fd int, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

func call(number uintptr, fd int, b []byte) (int, error) {
	n, _, err := syscall.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}
