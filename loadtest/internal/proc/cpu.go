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

// CPU returns the CPU time that the process and its children have used since
// they began, user's and kernel's, of all their threads: to the nanosecond, and
// of children that have ended to a hundredth of a second. Of a process that has
// ended it is 0.
func (p *Process) CPU() time.Duration {
	pids := p.Pids()
	sum := CPUTime(pids...)
	for _, pid := range pids {
		sum += ended(pid)
	}
	return sum
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// ended returns the CPU time of a process's children that have ended.
func ended(pid int) (sum time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // it has ended itself
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(rest); len(fields) > 14 {
		for _, f := range fields[13:15] { // user's and kernel's
			n, _ := strconv.ParseInt(f, 10, 64) // the kernel writes numbers
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

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

// ThreadTime returns the CPU time of a thread of this process by its id; 0 is
// that of the caller.
func ThreadTime(tid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(cpuClock(tid)|4, &t); err != nil {
		return 0 // it has ended
	}
	return time.Duration(t.Nano())
}

// cpuClock is what clock_getcpuclockid(3) returns.
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }

// Pids returns the ids of the process and of its children.
func (p *Process) Pids() []int {
	pids := []int{p.Pid()}
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
