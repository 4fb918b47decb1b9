//go:build race

package sock

import (
	"runtime"
	"unsafe"
)

// ioSync makes the race detector see what package syscall shows it: what is
// written to a socket happens before it is read.
var ioSync int64

func acquire() { runtime.RaceAcquire(unsafe.Pointer(&ioSync)) }
func release() { runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync)) }
