//go:build unix

package process

import (
	"syscall"
	"time"
)

// cpuTime returns the time that the process has taken of all cores.
var cpuTime = func() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
