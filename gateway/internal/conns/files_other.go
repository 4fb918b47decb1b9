//go:build !unix

package conns

import "math"

// maxOpenFiles returns how many files the process may have open.
func maxOpenFiles() uint64 { return math.MaxUint64 }
