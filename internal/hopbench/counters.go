//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/internal/hopbench/load"
)

// counters are one record for each key, in a file that all apps of a stack map
// into their memory: what two executions of a key do to it shows whether they
// overlapped, in whichever processes they ran.
type counters []record

// record fills a cache line.
type record struct {
	running    atomic.Int64 // executions inside the critical section
	executions atomic.Int64
	overlaps   atomic.Int64 // executions that found another one running
	value      int64        // read and written back without any protection of its own
	_          [4]int64
}

// openCounters maps the file at path, which it makes or enlarges if need be.
func openCounters(path string, keys int) (counters, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	defer f.Close()
	size := keys * int(unsafe.Sizeof(record{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("counters: %w", err)
	}
	return unsafe.Slice((*record)(unsafe.Pointer(unsafe.SliceData(b))), keys), nil
}

// critical is the critical section that every lock protects: read, work, and
// write. It returns the new value of the key, or false for a key that there is
// not.
func (c counters) critical(key string, work time.Duration) (int64, bool) {
	i, err := strconv.Atoi(key[min(1, len(key)):])
	if err != nil || i < 0 || i >= len(c) || key != load.KeyName(i) {
		return 0, false
	}
	r := &c[i]
	if r.running.Add(1) != 1 {
		r.overlaps.Add(1)
	}
	value := r.value
	if work > 0 {
		<-time.After(work)
	}
	r.value = value + 1
	r.executions.Add(1)
	r.running.Add(-1)
	return value + 1, true
}

// verdict sums up what the records show.
type verdict struct{ executions, overlaps, lost int64 }

func (c counters) verdict() (v verdict) {
	for i := range c {
		r := &c[i]
		v.executions += r.executions.Load()
		v.overlaps += r.overlaps.Load()
		v.lost += r.executions.Load() - r.value
	}
	return v
}
