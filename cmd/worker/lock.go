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
// incarnations the file names are dead. The zero lockFile does nothing.
type lockFile struct{ f *os.File }

// lockIncarnations locks the file at path and returns the incarnations in it.
func lockIncarnations(path string) (previous []string, l *lockFile, err error) {
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
	l = &lockFile{f}
	if previous, err = l.read(); err != nil {
		l.close()
		return nil, nil, fmt.Errorf("cannot use %s (--lock-file): %w", path, err)
	}
	return previous, l, nil
}

// read returns the incarnations in the file. It leaves them there, since they
// may have to be released once more if this process dies early; only what
// exceeds maxPrevious goes.
func (l *lockFile) read() ([]string, error) {
	content, err := io.ReadAll(io.LimitReader(l.f, 1<<20))
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(string(content))
	if len(ids) <= maxPrevious {
		return ids, nil
	}
	ids = ids[len(ids)-maxPrevious:]
	if err := l.f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = l.f.WriteAt([]byte(strings.Join(ids, "\n")+"\n"), 0)
	return ids, err
}

// write adds an incarnation of this process.
func (l *lockFile) write(id string) error {
	if l.f == nil {
		return nil
	}
	end, err := l.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := l.f.WriteAt([]byte(id+"\n"), end); err != nil {
		return err
	}
	return l.f.Sync()
}

func (l *lockFile) close() {
	if l.f != nil {
		l.f.Close()
	}
}
