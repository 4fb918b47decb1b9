//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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

// CPU returns the CPU time that a process and its children have used since
// they began: user's and kernel's, of all their threads. It is exact to the
// nanosecond, and for children that have ended to a hundredth of a second.
func CPU(p *Process) (sum time.Duration) {
	if p.Ended() != nil {
		return p.Used()
	}
	for _, pid := range Pids(p) {
		sum += CPUTime(pid) + ended(pid)
	}
	return sum
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// ended returns the CPU time of a process's children that have ended; 0 if it has ended itself.
func ended(pid int) time.Duration {
	p, _ := procfs.NewProc(pid)
	stat, _ := p.Stat()
	return time.Duration(stat.CUTime+stat.CSTime) * tick
}

// CPUTime returns the CPU time of a process; 0 stands for the caller.
func CPUTime(pid int) time.Duration { return clock(int32(^pid<<3 | 2)) } // as clock_getcpuclockid(3)

// ThreadTime returns the CPU time of the thread that calls it.
func ThreadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// clock reads a clock; 0 if that of a process which has ended.
func clock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}

// Pids returns the ids of a process and of its children.
func Pids(p *Process) []int {
	pids := []int{p.Pid()}
	for i := 0; i < len(pids); i++ {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pids[i]))
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

// Resident returns how many bytes of the machine's memory processes hold, pages that
// they share counted for each.
func Resident(pids ...int) (sum uint64) {
	for _, pid := range pids {
		p, _ := procfs.NewProc(pid)
		status, _ := p.NewStatus() // zero if it has ended
		sum += status.VmRSS
	}
	return sum
}

// Pin moves this process to some cores. What it starts runs there too, unless [Spec] names others.
func Pin(cores []int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	threads, err := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		tid, _ := strconv.Atoi(t.Name()) // the kernel writes numbers
		err = errors.Join(err, unix.SchedSetaffinity(tid, &set))
	}
	return err
}

// Punctual makes the kernel end this thread's waits without the slack of 50 µs that it takes by default.
func Punctual() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }
