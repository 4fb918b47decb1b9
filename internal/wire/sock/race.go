//go:build race

package sock

import (
	"runtime"
	"unsafe"
)

// ioSync shows the race detector what package syscall shows it: a write to a socket happens before
// its read.
var ioSync int64

func acquire() { runtime.RaceAcquire(unsafe.Pointer(&ioSync)) }
func release() { runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync)) }
