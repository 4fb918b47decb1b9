// Package lockfile lets a process prove that the one before it is dead.
package lockfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxPrevious bounds how many incarnations the file goes on naming.
const MaxPrevious = 100

// File holds the incarnations of this process, and an exclusive lock that
// ends with the process: whoever gets the lock knows that the processes whose
// incarnations the file names are dead, if they ran under the same kernel. So
// beside each incarnation stands the boot id of its machine: a lock on a
// network file system, or on a volume that was attached elsewhere before,
// proves nothing of processes over there. The zero File does nothing.
type File struct {
	f    *os.File
	boot string
}

// BootID returns the kernel's random id of this boot of the machine, "" where
// there is none, in which case nothing can be proved.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// errLocked means that another process holds the lock.
var errLocked = errors.New("lockfile: locked")

// Lock locks the file at path, which it makes if there is none, and returns the
// incarnations in it that ran under the boot id; with no boot id none. With no
// path it returns the zero File. A file that cannot be opened is an
// [*os.PathError].
func Lock(path, boot string) (previous []string, l *File, err error) {
	if path == "" {
		return nil, new(File), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		if errors.Is(err, errLocked) {
			return nil, nil, fmt.Errorf("another worker is running with %s: choose another --lock-file for this one", path)
		}
		return nil, nil, fmt.Errorf("cannot lock %s (--lock-file): %w", path, err)
	}
	l = &File{f, boot}
	if previous, err = l.read(); err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("cannot use %s (--lock-file): %w", path, err)
	}
	return previous, l, nil
}

// read returns the incarnations in the file that are certainly dead. It leaves
// them there, since they may have to be released once more if this process dies
// early; those of other boots go, and what exceeds MaxPrevious.
func (l *File) read() (previous []string, err error) {
	content, err := io.ReadAll(io.LimitReader(l.f, 1<<20))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		id, boot, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id != "" && !strings.HasPrefix(id, struck) && boot != "" && boot == l.boot {
			previous = append(previous, id)
		}
	}
	previous = previous[max(0, len(previous)-MaxPrevious):]
	var kept strings.Builder
	for _, id := range previous {
		kept.WriteString(l.line(id))
	}
	if kept.String() == string(content) {
		return previous, nil
	}
	if err := l.f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = l.f.WriteAt([]byte(kept.String()), 0)
	return previous, err
}

func (l *File) line(id string) string { return id + " " + l.boot + "\n" }

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

// Strike takes an incarnation of this process off again: that the process is dead
// will not prove that nobody works any more by what it owned.
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

// Close frees the lock. What the file names stays.
func (l *File) Close() {
	if l.f != nil {
		l.f.Close()
	}
}
