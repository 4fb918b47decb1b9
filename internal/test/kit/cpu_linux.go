package kit

import (
	"syscall"
	"testing"
	"time"
)

// CPU returns the processor time that this process has used.
func CPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ReportCPU reports the processor time per operation of what b does from now on, which says
// more than the time on the clock where others have a part of the processors.
func ReportCPU(b *testing.B) {
	b.Helper()
	before := CPU(b)
	b.ResetTimer()
	b.Cleanup(func() { b.ReportMetric(float64((CPU(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") })
}
