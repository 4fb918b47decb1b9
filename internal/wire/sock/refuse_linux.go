package sock

import (
	"syscall"
	"unsafe"
)

// Offset and bits of the flags in a TCP header (RFC 9293, section 3.1).
const (
	tcpFlags = 13
	tcpSyn   = 0x02
	tcpAck   = 0x10
)

// dropSyn is a classic BPF program that drops the segments which open connections.
// Each of its lines works on what the one before has left.
var dropSyn = [...]syscall.SockFilter{
	{Code: syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS, K: tcpFlags},
	{Code: syscall.BPF_ALU | syscall.BPF_AND | syscall.BPF_K, K: tcpSyn | tcpAck},
	{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: tcpSyn, Jf: 1},
	{Code: syscall.BPF_RET | syscall.BPF_K, K: 0},
	{Code: syscall.BPF_RET | syscall.BPF_K, K: 1<<32 - 1},
}

// RefuseNew makes the kernel ignore new connections to a listening TCP socket; connections that had
// begun before still complete. Ignored clients retry after a second, when the socket is closed or
// has a new owner. On systems other than Linux it does nothing.
func RefuseNew(fd uintptr) {
	program := dropSyn
	filter := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_SETSOCKOPT, fd, syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER, uintptr(unsafe.Pointer(&filter)), unsafe.Sizeof(filter), 0)
}
