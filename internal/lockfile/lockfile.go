// Package lockfile lets a process prove that the one before it is dead.
package lockfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
// was attached elsewhere before, proves nothing about processes there. It also has the file's file
// system and inode, since the lock of a copy proves nothing either, and the grace during which an app
// may continue the process's work.
//
// The file may begin with a header, which the process has in its memory, to count there what runs
// at its app. The kernel keeps the count when the process is killed. The lines of a process that
// counts are marked: they have no grace if nothing was at the app. Its successor writes down what became
// of them before it counts itself. The file must not be truncated while a process has it.
//
// The zero File does nothing.
type File struct {
	Running *atomic.Int64 // executions that may run at the app; nil if the file cannot count them

	f     *os.File
	place string // of f, see placeOf
	grace time.Duration
	kept  bool // past Close
}

// The header is headerMark, 8 bytes in the machine's order, and a line's end.
const (
	headerMark = "running:"
	headerSize = len(headerMark) + 8 + 1
	counted    = "counted"
)

// Dead is an incarnation whose process is certainly dead.
type Dead struct {
	ID    string
	Grace time.Duration // after the process's death; 0 if nothing was at its app
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

// placeOf returns where a file is: the boot id, the file system and the inode; "" without a boot id.
func placeOf(f *os.File, boot string) string {
	if boot == "" {
		return ""
	}
	return boot + "#" + inode(f)
}

// errLocked means that another process holds the lock.
var errLocked = errors.New("lockfile: locked")

// Lock locks the file at path, which it makes if there is none, and returns the incarnations in it
// that ran under the boot id; with no boot id none. Write adds lines with that grace. With no path
// Lock returns the zero File. A file that cannot be opened is an [*os.PathError].
func Lock(path, boot string, grace time.Duration) (previous []Dead, l *File, err error) {
	if path == "" {
		return nil, new(File), nil
	}
	f, err := openLocked(path)
	if err != nil {
		return nil, nil, err
	}
	l = &File{f: f, place: placeOf(f, boot), grace: grace}
	if grace > 0 && local(f) {
		l.Running = mapCount(f)
	}
	if previous, err = l.read(); err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("cannot use %s (--lock-file): %w", path, err)
	}
	return previous, l, nil
}

// openLocked opens the file at path, which it makes if there is none, and locks it.
func openLocked(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = lock(f, false)
	for began := time.Now(); errors.Is(err, errLocked) && time.Since(began) < patience; err = lock(f, false) {
		time.Sleep(patience / 100)
	}
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, errLocked):
		err = fmt.Errorf("another worker is running with %s: choose another --lock-file for this one", path)
	default:
		err = fmt.Errorf("cannot lock %s (--lock-file): %w", path, err)
	}
	f.Close()
	return nil, err
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
	dead, _, err := (&File{f: f, place: placeOf(f, boot)}).parse()
	return dead, err
}

// AtApp returns how many executions may run at the app of the dead process that had the file at path
// last, 0 if that has not counted them.
func AtApp(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	header := make([]byte, headerSize)
	n, err := f.ReadAt(header, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	running, _ := split(string(header[:n]))
	return max(running, 0), nil
}

// Clear records in the file at path that the app has ended the executions which AtApp has returned.
func Clear(path string, running int64) error {
	f, err := openLocked(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := AtApp(path); err != nil || now != running || now == 0 {
		return err // another process has had the file since
	}
	_, err = f.WriteAt(make([]byte, 8), int64(len(headerMark)))
	return err
}

// split returns the count in the header of a file, -1 if it has none, and the lines.
func split(content string) (running int64, lines string) {
	if len(content) < headerSize || !strings.HasPrefix(content, headerMark) {
		return -1, content
	}
	return int64(binary.NativeEndian.Uint64([]byte(content[len(headerMark):]))), content[headerSize:]
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
	if l.Running != nil {
		kept.WriteString(headerMark + strings.Repeat("\x00", 8) + "\n")
	}
	for _, d := range previous {
		kept.WriteString((&File{place: l.place, grace: d.Grace}).line(d.ID))
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
	running, lines := split(string(all))
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line) // as line writes them
		if len(fields) < 3 || strings.HasPrefix(fields[0], struck) || fields[1] != l.place {
			continue
		}
		grace, err := time.ParseDuration(fields[2])
		if err != nil {
			continue
		}
		if len(fields) > 3 && running == 0 && local(l.f) {
			grace = 0
		}
		dead = append(dead, Dead{fields[0], grace})
	}
	return dead[max(0, len(dead)-MaxPrevious):], string(all), nil
}

func (l *File) line(id string) string {
	mark := ""
	if l.Running != nil {
		mark = " " + counted
	}
	return fmt.Sprintf("%s %s %v%s\n", id, l.place, l.grace, mark)
}

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
	l.kept = true
	kept.Store(l, nil)
}

var kept sync.Map // the Files of Keep, so that none is closed as garbage
