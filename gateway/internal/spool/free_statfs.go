//go:build linux || darwin

package spool

import (
	"math"
	"syscall"
)

// freeBytes returns how many bytes are freeBytes in dir; if that is not known, very many.
func freeBytes(dir string) int64 {
	var at syscall.Statfs_t
	if err := syscall.Statfs(dir, &at); err != nil {
		return math.MaxInt64
	}
	if bytes := float64(at.Bavail) * float64(at.Bsize); bytes < math.MaxInt64/2 {
		return int64(bytes)
	}
	return math.MaxInt64
}
