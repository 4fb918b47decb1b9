package sock

import (
	"encoding/binary"
	"syscall"
	"unsafe"
)

const supported = true

// read and write make the calls that only sockets have: the kernel takes a shorter way
// than with those of files, which saves a tenth of a microsecond each.

func read(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_RECVFROM, fd, b, syscall.MSG_DONTWAIT)
}

func write(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_SENDTO, fd, b, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func call(number, fd uintptr, b []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	return int(n), fault(errno)
}

func peek(fd uintptr) (int, error) {
	var b [1]byte
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return int(n), fault(errno)
}

// tcpQuickAck is TCP_QUICKACK, see tcp(7).
const tcpQuickAck = 12

// Acknowledge has the kernel acknowledge at once what has come on a TCP socket.
func Acknowledge(fd uintptr) {
	on := int32(1)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, fd, syscall.IPPROTO_TCP, tcpQuickAck, uintptr(unsafe.Pointer(&on)), unsafe.Sizeof(on), 0)
}

// Acknowledged returns how many bytes the other side of a TCP socket has
// acknowledged since the connection was made, the one of the handshake among them:
// tcpi_bytes_acked of struct tcp_info, see linux/tcp.h.
func Acknowledged(fd uintptr) (uint64, error) {
	const at = 120
	var info [at + 8]byte
	size := uint32(len(info))
	_, _, errno := syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno == 0 && size < uint32(len(info)) {
		errno = syscall.EOPNOTSUPP
	}
	return binary.NativeEndian.Uint64(info[at:]), fault(errno)
}

// Failure returns and clears the error of a socket that was not reported before; nil if there is
// none.
func Failure(fd uintptr) error {
	n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	if err != nil {
		return err
	}
	return fault(syscall.Errno(n))
}

// fault makes an error, without an allocation where nothing is wrong.
func fault(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.EAGAIN:
		return errAgain
	}
	return errno
}

var errAgain error = syscall.EAGAIN

// Events of poll(2) that package syscall does not name.
const (
	pollErr   = 0x8
	pollHup   = 0x10
	pollRdHup = 0x2000
)

// HungUp reports whether the other side of a socket has closed it, or ended its
// sending, or it has failed, even when something that was sent before has not been read.
func HungUp(fd uintptr) bool {
	poll := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: pollRdHup}
	var now syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n == 1 && poll.revents&(pollErr|pollHup|pollRdHup) != 0
}
