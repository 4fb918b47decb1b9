package locktest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/redistest"
)

// campaign is one run of several worker processes.
type campaign struct {
	workers int
	keys    int
	length  time.Duration
	env     []string
}

// life is one process: its file and the time by which it was certainly dead.
type life struct {
	file string
	dead int64
}

// run runs the workers, each of which is stopped and killed at random, and
// returns all their lives.
func (c campaign) run(t *testing.T) []life {
	t.Helper()
	server := redistest.Start(t)
	dir := t.TempDir()
	end := time.Now().Add(c.length)
	var running sync.WaitGroup
	var mu sync.Mutex
	var lives []life
	for i := range c.workers {
		running.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				l, err := c.live(server.Addr(), filepath.Join(dir, fmt.Sprintf("%d.%d", i, n)), fmt.Sprintf("%d.%d", i, n), end)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				lives = append(lives, l)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return lives
}

// live runs one process until it is killed or the campaign ends.
func (c campaign) live(addr, file, name string, end time.Time) (life, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(c.env, "LOCKTEST_WORKER=1", "LOCKTEST_REDIS="+addr,
		"LOCKTEST_FILE="+file, "LOCKTEST_NAME="+name, fmt.Sprint("LOCKTEST_KEYS=", c.keys))...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return life{}, err
	}
	if err := cmd.Start(); err != nil {
		return life{}, err
	}
	killed := c.disturb(cmd.Process, end)
	if killed {
		_ = cmd.Process.Kill()
	}
	_ = stdin.(io.Closer).Close()
	err = cmd.Wait()
	if killed {
		err = nil
	}
	return life{file: file, dead: now()}, err
}

// disturb stops and continues a process until the campaign ends, or returns
// true when the process is to be killed.
func (c campaign) disturb(p *os.Process, end time.Time) (kill bool) {
	for time.Now().Before(end) {
		<-time.After(min(rand.N(1500*time.Millisecond), time.Until(end)))
		switch {
		case rand.N(6) == 0 && time.Until(end) > time.Second:
			return true
		case rand.N(2) == 0:
			_ = p.Signal(syscall.SIGSTOP)
			<-time.After(rand.N(3 * ttl))
			_ = p.Signal(syscall.SIGCONT)
		}
	}
	return false
}
