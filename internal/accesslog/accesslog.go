// Package accesslog writes lines of JSON about the requests that a router has answered to a file.
// Requests never wait for it: lines that cannot be written in time are dropped, counted and
// reported.
package accesslog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/wake"
)

// Config configures a [Log]. File is required, and no number is negative.
type Config struct {
	// File is where lines are appended, "-" for standard output. A file that does not
	// exist is made, for its owner to write and its group to read.
	File string

	// Sample bounds the lines: one request in Sample, chosen at random, has a line. Default 1: each
	// has a line.
	Sample int

	// Slow is a duration from which a request always has a line, as has one with a status of 500 or
	// above. Default: none.
	Slow time.Duration

	// Keys puts keys into lines, and not only their hashes.
	Keys bool

	Logger *slog.Logger // of what is dropped, and of files that cannot be written; default: discard
}

// maxWaiting bounds the bytes of lines that wait to be written; further lines are dropped.
const maxWaiting = 4 << 20

// Log is an access log. Make one with [Start]. mu guards the lines and the states that Reopen and
// Close set. One goroutine writes the lines to file until it closes done.
type Log struct {
	cfg     Config
	log     *slog.Logger
	dropped atomic.Int64

	mu     sync.Mutex // guards what follows
	closed bool
	reopen bool
	lines  []byte // to be written
	spare  []byte // memory of lines that were

	wake chan struct{} // holds one element while there is something to do
	done chan struct{} // closed when nothing more is written
	file *os.File      // the writer's
}

// Start opens the file, and writes to it until [Log.Close].
func Start(cfg Config) (*Log, error) {
	cfg.Sample = cmp.Or(cfg.Sample, 1)
	l := &Log{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if l.file, err = l.open(); err != nil {
		return nil, err
	}
	l.log = requestlog.New(cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)))
	go l.write()
	return l, nil
}

func (l *Log) open() (*os.File, error) {
	if l.cfg.File == "-" {
		return os.Stdout, nil
	}
	f, err := os.OpenFile(l.cfg.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	return f, nil
}

// Wants reports whether a request with that status and duration gets a line. With sampling, each
// call decides anew.
func (l *Log) Wants(status int, took time.Duration) bool {
	return status >= http.StatusInternalServerError || l.cfg.Slow > 0 && took >= l.cfg.Slow ||
		l.cfg.Sample == 1 || rand.IntN(l.cfg.Sample) == 0
}

// Add queues a line about e, or drops it.
func (l *Log) Add(e Entry) {
	e.complete(l.cfg.Keys)
	line, _ := json.Marshal(&e) // no value of it can fail
	l.mu.Lock()
	kept := !l.closed && len(l.lines)+len(line) < maxWaiting
	if kept {
		l.lines = append(append(l.lines, line...), '\n')
	}
	l.mu.Unlock()
	if !kept {
		l.dropped.Add(1)
	}
	wake.Up(l.wake)
}

// Reopen has what comes from now on written to the file that has the name then, which
// is another one when the first was renamed.
func (l *Log) Reopen() {
	l.mu.Lock()
	l.reopen = true
	l.mu.Unlock()
	wake.Up(l.wake)
}

// closeTimeout bounds how long Close writes the last lines.
const closeTimeout = 2 * time.Second

// Close writes what there is, and closes the file. If that takes more than 2 s it returns an error.
// It may be called more than once.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	wake.Up(l.wake)
	select {
	case <-l.done:
		return nil
	case <-time.After(closeTimeout):
		return errors.New("accesslog: the file does not take the last lines")
	}
}

// write writes lines until the log is closed.
func (l *Log) write() {
	defer close(l.done)
	said := int64(0)
	for range l.wake {
		l.mu.Lock()
		lines, reopen, closed := l.lines, l.reopen, l.closed
		l.lines, l.spare, l.reopen = l.spare[:0], lines, false
		l.mu.Unlock()
		if reopen {
			l.change()
		}
		if n, err := l.file.Write(lines); err != nil {
			l.dropped.Add(int64(bytes.Count(lines[n:], []byte("\n"))))
			l.log.Error("the access log cannot be written", "file", l.cfg.File, "error", err)
		}
		if n := l.dropped.Load(); n > said {
			l.log.Warn("lines of the access log were dropped: the file did not take them", "file", l.cfg.File, "lines_so_far", n)
			said = n
		}
		if closed {
			l.close()
			return
		}
	}
}

// change reopens the file. If that fails, the present file stays in use.
func (l *Log) change() {
	f, err := l.open()
	if err != nil {
		l.log.Error("the access log cannot be reopened: lines still go to the old file", "file", l.cfg.File, "error", err)
		return
	}
	l.close()
	l.file = f
}

func (l *Log) close() {
	if l.file != os.Stdout {
		_ = l.file.Close()
	}
}
