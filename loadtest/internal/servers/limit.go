//go:build linux

package servers

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// period is that of a quota, in µs: that of containers by default.
const period = 100_000

// Limit puts a process into a new cgroup, of version 1 or 2, that has so many cores. It needs root.
func Limit(w *proc.Process, cores float64) (remove func(), err error) {
	root, name, quota := "/sys/fs/cgroup", "cpu.max", fmt.Sprintf("%.0f %d", cores*period, period)
	if _, err := os.Stat(filepath.Join(root, "cpu")); err == nil {
		root, name, quota = filepath.Join(root, "cpu"), "cpu.cfs_quota_us", fmt.Sprintf("%.0f", cores*period)
	}
	dir, err := os.MkdirTemp(root, "keyway-load-")
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(dir, name), []byte(quota), 0o600)
	err = cmp.Or(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.Pid())), 0o600))
	return func() { w.Kill(); os.Remove(dir) }, err
}
