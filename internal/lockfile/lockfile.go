// Package lockfile lets a process prove that the one before it is dead.
package lockfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// MaxPrevious bounds how many former incarnations the file names.
const MaxPrevious = 100

// patience is how long Lock waits for witnesses, which hold the lock while they read.
const patience = 500 * time.Millisecond

// File holds the incarnations of this process, and an exclusive lock. The kernel ends the lock when
// the last thread of the process has ended. A process that gets the lock therefore knows that the
// processes of the file's incarnations are dead, if they ran under the same kernel. Each line has
// the boot id of its machine to check that: a lock on a network file system, or on a volume that
// was attached elsewhere before, proves nothing about processes there. A line also has the grace
// during which an app may continue the process's work. The zero File does nothing.
type File struct {
	f     *os.File
	boot  string
	grace time.Duration
	kept  bool // past Close
}

// Dead is an incarnation whose process is certainly dead.
type Dead struct {
	ID    string
	Grace time.Duration // after the process's death; negative if an older version wrote the line
}

// BootID returns the kernel's random id of this boot and the machine's id, if it has
// one. It returns "" where there is no boot id: nothing can be proved then.
func BootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	machine, _ := os.ReadFile("/etc/machine-id")
	return strings.Join(strings.Fields(string(boot)+" "+string(machine)), "/")
}

// errLocked means that another process holds the lock.
var errLocked = errors.New("lockfile: locked")

// Lock locks the file at path, which it makes if there is none, and returns the
// incarnations in it that ran under the boot id; with no boot id none. Write adds lines
// with that grace. With no path Lock returns the zero File. A file that cannot be opened
// is an [*os.PathError].
func Lock(path, boot string, grace time.Duration) (previous []Dead, l *File, err error) {
	if path == "" {
		return nil, new(File), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	err = lock(f, false)
	for began := time.Now(); errors.Is(err, errLocked) && time.Since(began) < patience; err = lock(f, false) {
		time.Sleep(patience / 100)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, errLocked) {
			return nil, nil, fmt.Errorf("another worker is running with %s: choose another --lock-file for this one", path)
		}
		return nil, nil, fmt.Errorf("cannot lock %s (--lock-file): %w", path, err)
	}
	l = &File{f: f, boot: boot, grace: grace}
	if previous, err = l.read(); err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("cannot use %s (--lock-file): %w", path, err)
	}
	return previous, l, nil
}

// Witness returns the incarnations in the file at path that ran under the boot id, if no
// process holds its lock: they are dead then, and remain so. It changes nothing.
func Witness(path, boot string) ([]Dead, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch err := lock(f, true); {
	case errors.Is(err, errLocked):
		return nil, nil
	case err != nil:
		return nil, err
	}
	dead, _, err := (&File{f: f, boot: boot}).parse()
	return dead, err
}

// read returns the incarnations in the file that are certainly dead. It leaves
// them there, since they may have to be released once more if this process dies
// early; those of other boots go, and what exceeds MaxPrevious.
func (l *File) read() ([]Dead, error) {
	previous, content, err := l.parse()
	if err != nil {
		return nil, err
	}
	var kept strings.Builder
	for _, d := range previous {
		kept.WriteString((&File{boot: l.boot, grace: d.Grace}).line(d.ID))
	}
	if kept.String() == content {
		return previous, nil
	}
	if err := l.f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = l.f.WriteAt([]byte(kept.String()), 0)
	return previous, err
}

// parse returns the latest incarnations that ran under the boot id.
func (l *File) parse() (dead []Dead, content string, err error) {
	all, err := io.ReadAll(io.LimitReader(l.f, 1<<20))
	if err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(string(all)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		boot, text, _ := strings.Cut(rest, " ")
		grace, err := time.ParseDuration(text)
		if err != nil {
			grace = -1
		}
		if id != "" && !strings.HasPrefix(id, struck) && boot != "" && boot == l.boot {
			dead = append(dead, Dead{id, grace})
		}
	}
	return dead[max(0, len(dead)-MaxPrevious):], string(all), nil
}

func (l *File) line(id string) string { return fmt.Sprintf("%s %s %v\n", id, l.boot, l.grace) }

// Write adds an incarnation of this process.
func (l *File) Write(id string) error {
	if l.f == nil {
		return nil
	}
	end, err := l.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := l.f.WriteAt([]byte(l.line(id)), end); err != nil {
		return err
	}
	return l.f.Sync()
}

// struck stands in place of each byte of an incarnation that was struck off.
const struck = "-"

// Strike removes an incarnation of this process from the file. The death of the process then no
// longer proves that the work of this incarnation has ended.
func (l *File) Strike(id string) error {
	if l.f == nil {
		return nil
	}
	content, err := io.ReadAll(io.NewSectionReader(l.f, 0, 1<<20))
	if err != nil {
		return err
	}
	at := strings.Index(string(content), l.line(id))
	if at < 0 {
		return fmt.Errorf("lockfile: it does not name incarnation %s", id)
	}
	if _, err := l.f.WriteAt([]byte(strings.Repeat(struck, len(id))), int64(at)); err != nil {
		return err
	}
	return l.f.Sync()
}

// Close frees the lock. The file keeps its lines.
func (l *File) Close() {
	if l.f != nil && !l.kept {
		l.f.Close()
	}
}

// Keep leaves the lock to the process's end, since work of its incarnations continues.
func (l *File) Keep() {
	keeping.Lock()
	defer keeping.Unlock()
	l.kept, kept = true, append(kept, l.f)
}

var (
	keeping sync.Mutex
	kept    []*os.File // so that none is closed as garbage
)
