package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// second is what the client prints, see its type Second.
type second struct {
	OK      int            `json:"ok"`
	Failed  map[string]int `json:"failed"`
	Longest int64          `json:"longest_ms"`
}

// load is a client that runs in a container.
type load struct {
	cmd  *exec.Cmd
	name string
	read chan struct{} // closed when the client's output has ended

	mu    sync.Mutex
	total second
	since second // since result was called
}

// startLoad starts a client in a network and waits for its first answers.
func startLoad(ctx context.Context, name, network string, rate int, routers ...string) (*load, error) {
	l := &load{name: name, read: make(chan struct{})}
	l.cmd = exec.Command("docker", "run", "--rm", "--name", name, "--network", network, clientImage,
		"-rate", fmt.Sprint(rate), "-routers", strings.Join(routers, ","))
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.cmd.Stderr = l.cmd.Stdout
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	go l.follow(bufio.NewScanner(out))
	if err := l.awaitAnswers(ctx, 20); err != nil {
		return nil, fmt.Errorf("the client: %w", err)
	}
	return l, nil
}

func (l *load) follow(lines *bufio.Scanner) {
	defer close(l.read)
	for lines.Scan() {
		var s second
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			s = second{Failed: map[string]int{"client: " + lines.Text(): 1}}
		}
		l.mu.Lock()
		l.total.add(s)
		l.since.add(s)
		l.mu.Unlock()
	}
}

func (s *second) add(other second) {
	s.OK += other.OK
	s.Longest = max(s.Longest, other.Longest)
	if s.Failed == nil {
		s.Failed = make(map[string]int)
	}
	for why, n := range other.Failed {
		s.Failed[why] += n
	}
}

func (s *second) failed() (n int) {
	for _, count := range s.Failed {
		n += count
	}
	return n
}

func (s *second) String() string {
	parts := []string{fmt.Sprintf("%d answers, %d failed, the longest took %d ms", s.OK, s.failed(), s.Longest)}
	for _, why := range slices.Sorted(maps.Keys(s.Failed)) {
		parts = append(parts, fmt.Sprintf("%d × %s", s.Failed[why], why))
	}
	return strings.Join(parts, "\n      ")
}

// awaitAnswers waits until there are n more answers, for a minute at most.
func (l *load) awaitAnswers(ctx context.Context, n int) error {
	want := l.answers() + n
	return await(ctx, time.Minute, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.total.OK < want {
			return fmt.Errorf("there are not %d answers more: %s", n, &l.total)
		}
		return nil
	})
}

// answers returns how many answers have come.
func (l *load) answers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total.OK
}

// result returns what was answered since it was called last.
func (l *load) result() second {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.since
	l.since = second{}
	return s
}

// stop ends the client once all of its requests are answered, and returns what
// it got in all.
func (l *load) stop(ctx context.Context) (second, error) {
	if _, err := docker(ctx, "kill", "--signal", "TERM", l.name); err != nil {
		return l.total, err
	}
	select {
	case <-l.read:
	case <-ctx.Done():
		_ = l.cmd.Process.Signal(syscall.SIGTERM) // it has gone on its own, or ends now
		<-l.read
	}
	err := l.cmd.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, err
}
