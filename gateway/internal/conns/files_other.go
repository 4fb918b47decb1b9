//go:build !unix

package conns

import "math"

// MaxOpenFiles returns how many files the process may have open.
func MaxOpenFiles() uint64 { return math.MaxUint64 }
