//go:build linux

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time that the process and its children have used since
// they began, user's and kernel's, of all their threads, to the nanosecond. Of
// one that has ended it is 0.
func (p *Process) CPU() time.Duration { return CPUTime(p.pids()...) }

// CPUTime returns the CPU time of processes; 0 stands for the caller's.
func CPUTime(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		var t unix.Timespec
		if err := unix.ClockGettime(cpuClock(pid), &t); err == nil {
			sum += time.Duration(t.Nano())
		}
	}
	return sum
}

// cpuClock is what clock_getcpuclockid(3) returns.
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }

// pids returns the ids of the process and of its children.
func (p *Process) pids() []int {
	pids := []int{p.cmd.Process.Pid}
	for i := 0; i < len(pids); i++ {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pids[i], pids[i]))
		if err != nil {
			continue // it has ended, or the kernel does not tell
		}
		for s := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(s); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
