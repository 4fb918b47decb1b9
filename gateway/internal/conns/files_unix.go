//go:build unix

package conns

import (
	"math"
	"syscall"
)

// MaxOpenFiles returns how many files the process may have open. Go raises the
// soft limit to the hard one when a program starts.
func MaxOpenFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}
