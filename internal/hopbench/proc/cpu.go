//go:build linux

package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cores returns the cores that this process may use.
func Cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	var cores []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores, nil
}

// CPUTime returns the CPU time that the processes have used since they began,
// user's and kernel's, of all their threads, to the nanosecond. A process that
// has ended counts for nothing.
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

// Pids returns the ids of the process and of its children.
func (p *Process) Pids() []int {
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

// Memory is how much of the machine's memory processes hold.
type Memory struct{ Resident, Peak int64 } // bytes

// MemoryOf returns the memory of the processes, pages that they share counted
// for each.
func MemoryOf(pids ...int) (m Memory) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(status))
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			if len(f) < 2 {
				continue
			}
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			switch f[0] {
			case "VmRSS:":
				m.Resident += kib << 10
			case "VmHWM:":
				m.Peak += kib << 10
			}
		}
	}
	return m
}
