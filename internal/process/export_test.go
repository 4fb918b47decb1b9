package process

import "time"

// SetCPUTime sets the clock of the time that the process takes, until restore is called.
func SetCPUTime(f func() time.Duration) (restore func()) {
	old := cpuTime
	cpuTime = f
	return func() { cpuTime = old }
}
