package trial

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// glance is how often other processes are looked at. A process is starved if a thread has waited for a CPU for nine tenths of
// that: it always had something to do, and hardly ever ran. On a machine that is only busy, threads may wait half of the time.
const glance = time.Second

// hunger finds processes that a busy machine keeps from running. It asks the kernel, not the processes. A
// process that hangs by its own fault, or is stopped, waits for no CPU.
type hunger struct {
	proc   string                   // the directory /proc
	at     time.Duration            // of the last look
	waited map[string]time.Duration // by thread: for how long it has waited for a CPU since it began
}

// look returns the process that was starved most since the last look, and how long a thread of it has waited for a CPU; of
// a thread that is new, nothing is known. Where the kernel does not count that, no process is starved.
func (h *hunger) look(now time.Duration, pids map[string]int) (longest string, wait time.Duration) {
	least := (now - h.at) / 10 * 9
	waited := make(map[string]time.Duration)
	for label, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("%s/%d/task/*/schedstat", h.proc, pid))
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			var ran int64
			var total time.Duration
			if n, _ := fmt.Sscan(string(text), &ran, &total); err != nil || n < 2 {
				continue
			}
			before, known := h.waited[thread]
			if waited[thread] = total; known && total-before >= max(least, wait+1) {
				longest, wait = label, total-before
			}
		}
	}
	h.waited, h.at = waited, now
	return longest, wait
}

// pids returns the processes that a trial relies on, by their names.
func (s *Site) pids() map[string]int {
	pids := make(map[string]int)
	for _, p := range append(s.Stage.Running(), s.Store.stage.Running()...) {
		pids[p.Name] = p.Pid()
	}
	return pids
}
