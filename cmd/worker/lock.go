package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/keyway-go/keyway/internal/cli"
)

// maxPrevious bounds how many incarnations the file goes on naming.
const maxPrevious = 100

// lockFile holds the incarnations of this process, and an exclusive lock that
// ends with the process: whoever gets the lock knows that the processes whose
// incarnations the file names are dead, if they ran under the same kernel. So
// beside each incarnation stands the boot id of its machine: a lock on a
// network file system, or on a volume that was attached elsewhere before,
// proves nothing of processes over there. The zero lockFile does nothing.
type lockFile struct {
	f    *os.File
	boot string
}

// bootID returns the kernel's random id of this boot of the machine, "" where
// there is none, in which case nothing can be proved.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// lockIncarnations locks the file at path and returns the incarnations in it
// that ran under the boot id. With no boot id it returns none.
func lockIncarnations(path, boot string) (previous []string, l *lockFile, err error) {
	if path == "" {
		return nil, new(lockFile), nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, cli.Usagef("--lock-file: %v", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("another worker is running with %s: choose another --lock-file for this one", path)
		}
		return nil, nil, fmt.Errorf("cannot lock %s (--lock-file): %w", path, err)
	}
	l = &lockFile{f, boot}
	if previous, err = l.read(); err != nil {
		l.close()
		return nil, nil, fmt.Errorf("cannot use %s (--lock-file): %w", path, err)
	}
	return previous, l, nil
}

// read returns the incarnations in the file that are certainly dead. It leaves
// them there, since they may have to be released once more if this process dies
// early; those of other boots go, and what exceeds maxPrevious.
func (l *lockFile) read() (previous []string, err error) {
	content, err := io.ReadAll(io.LimitReader(l.f, 1<<20))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		id, boot, _ := strings.Cut(strings.TrimSpace(line), " ")
		if id != "" && boot != "" && boot == l.boot {
			previous = append(previous, id)
		}
	}
	previous = previous[max(0, len(previous)-maxPrevious):]
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

func (l *lockFile) line(id string) string { return id + " " + l.boot + "\n" }

// write adds an incarnation of this process.
func (l *lockFile) write(id string) error {
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

func (l *lockFile) close() {
	if l.f != nil {
		l.f.Close()
	}
}
