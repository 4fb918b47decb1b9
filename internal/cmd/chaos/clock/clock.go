// Package clock sets the clocks of programs from outside: they read them
// through an offset and a rate in a file that both map. Go programs are built
// with an overlay of the runtime ([Overlay]), C programs run with a library
// before theirs ([Preload]); their own sources are untouched.
//
// Timers follow as far as they compare the program's clock; one that sleeps in
// the kernel until then may be late by its length times the rate's deviation.
package clock

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Env is the variable that names the file of a program's clock. Without it a
// program runs by the machine's clock.
const Env = "TEST_CLOCK_FILE"

//go:embed overlay
var sources embed.FS

// ErrUnsupported is returned where the overlay does not fit.
var ErrUnsupported = errors.New("clock: only linux/amd64, and a runtime whose sources the overlay knows")

// Overlay writes what go build -overlay takes into dir and returns the file's
// path.
func Overlay(dir string) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", ErrUnsupported
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("clock: go env GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "runtime")
	replace := make(map[string]string)
	put := func(name, text string) error {
		path := filepath.Join(dir, name)
		replace[filepath.Join(source, name)] = path
		return os.WriteFile(path, []byte(text), 0o600)
	}
	for _, change := range []struct{ name, before, after string }{
		{"time_nofake.go", "return nanotime1()", "return testMono(nanotime1())"},
		{"time_linux_amd64.s", "TEXT time·now<ABIInternal>(SB)", "TEXT ·testNow<ABIInternal>(SB)"},
	} {
		text, err := os.ReadFile(filepath.Join(source, change.name))
		if err != nil {
			return "", fmt.Errorf("clock: %w", err)
		}
		if strings.Count(string(text), change.before) != 1 {
			return "", fmt.Errorf("%w: %s has not %q once", ErrUnsupported, change.name, change.before)
		}
		if err := put(change.name, strings.Replace(string(text), change.before, change.after, 1)); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"timeasm.go", "testclock.go"} {
		text, err := sources.ReadFile("overlay/" + name + ".txt")
		if err != nil {
			return "", err
		}
		if err := put(name, string(text)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// Preload makes the library that gives C programs such a clock, for LD_PRELOAD,
// in dir, and returns its path. It needs a C compiler.
func Preload(dir string) (string, error) {
	text, err := sources.ReadFile("overlay/preload.c")
	if err != nil {
		return "", err
	}
	source, library := filepath.Join(dir, "preload.c"), filepath.Join(dir, "preload.so")
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("clock: cc: %w\n%s", err, out)
	}
	return library, nil
}

// page is what a program reads: its monotonic clock is base + (machine - since)
// * (1 + parts/2^32), its wall clock the machine's, as much ahead as the
// monotonic one, and ahead more.
type page struct {
	sequence atomic.Uint64 // odd while it changes
	since    int64         // ns of the machine's monotonic clock
	base     int64         // ns
	parts    int64
	ahead    int64 // ns
}

// Clock is the clock of one program, or of several.
type Clock struct {
	mapped []byte
	page   *page
}

// New makes the file of a clock that shows the machine's time.
func New(path string) (*Clock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("clock: mapping %s: %w", path, err)
	}
	return &Clock{mapped: mapped, page: (*page)(unsafe.Pointer(&mapped[0]))}, nil
}

// Close ends the use of the clock; programs go on by what was set last.
func (c *Clock) Close() error { return unix.Munmap(c.mapped) }

// Step sets the wall clock ahead, or back.
func (c *Clock) Step(by time.Duration) { c.change(func(p *page) { p.ahead += int64(by) }) }

// Rate lets wall and monotonic clock run at a multiple of their speed, which is 1.
func (c *Clock) Rate(r float64) {
	c.change(func(p *page) {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		now := ts.Nano()
		passed := now - p.since
		p.base += passed + ((passed>>16)*p.parts)>>16 // as the overlay does
		p.since, p.parts = now, int64((r-1)*(1<<32))
	})
}

func (c *Clock) change(f func(p *page)) {
	c.page.sequence.Add(1)
	f(c.page)
	c.page.sequence.Add(1)
}
