package process

import (
	"os"
	"runtime"
)

// HeapFloor is how many bytes the heap grows by, at least, between two runs of the
// garbage collector.
const HeapFloor = 32 << 20

// KeepHeap lets the garbage collector run as seldom as if HeapFloor bytes were live,
// until release is called. A program with a few live megabytes that serves tens of
// thousands of requests a second collects dozens of times a second otherwise. The
// bytes are never touched, so they are no memory themselves; what is not collected
// meanwhile is, up to HeapFloor. With GOGC in the environment KeepHeap does nothing.
func KeepHeap() (release func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	untouched := make([]byte, HeapFloor)
	return func() { runtime.KeepAlive(untouched) }
}
