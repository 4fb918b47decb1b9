//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// What may happen to a stack during a run.
const (
	eventAdd     = "add"           // another worker
	eventDrain   = "drain"         // a worker leaves in an orderly way
	eventKill    = "kill"          // kill -9
	eventPause   = "pause"         // SIGSTOP for a while
	eventRestart = "restart-redis" // without its data
)

// event is one of them.
type event struct {
	at     time.Duration
	kind   string
	worker string        // of drain, kill and pause
	length time.Duration // of pause
}

func (e event) String() string {
	switch e.kind {
	case eventPause:
		return fmt.Sprintf("%s %s %v", e.kind, e.worker, e.length)
	case eventDrain, eventKill:
		return e.kind + " " + e.worker
	}
	return e.kind
}

// parseEvents reads a timeline such as "5s add, 10s kill w1, 15s pause w2 3s".
func parseEvents(s string) (events []event, err error) {
	for item := range strings.SplitSeq(s, ",") {
		words := strings.Fields(item)
		if len(words) == 0 {
			continue
		}
		e, err := parseEvent(words)
		if err != nil {
			return nil, cli.Usagef("--events: %q: %v", strings.TrimSpace(item), err)
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	return events, nil
}

func parseEvent(words []string) (e event, err error) {
	if e.at, err = time.ParseDuration(words[0]); err != nil || e.at < 0 {
		return e, errors.New("it must begin with a time such as 5s")
	}
	if len(words) > 1 {
		e.kind = words[1]
	}
	arguments := map[string]int{eventAdd: 0, eventRestart: 0, eventDrain: 1, eventKill: 1, eventPause: 2}
	n, ok := arguments[e.kind]
	if !ok {
		return e, fmt.Errorf("after the time comes one of add, drain w1, kill w1, pause w1 3s, restart-redis")
	}
	if len(words) != 2+n {
		return e, fmt.Errorf("%s takes %d arguments", e.kind, n)
	}
	if n > 0 {
		e.worker = words[2]
	}
	if n > 1 {
		if e.length, err = time.ParseDuration(words[3]); err != nil || e.length <= 0 {
			return e, fmt.Errorf("%q is not a time such as 3s", words[3])
		}
	}
	return e, nil
}

// play makes the events happen, counted from begin, until all have or ctx
// ends. They happen one after the other, so that one may come late.
func (s *stack) play(ctx context.Context, begin time.Time, events []event) (marks []report.Mark, err error) {
	for _, e := range events {
		if !sleep(ctx, time.Until(begin.Add(e.at))) {
			return marks, nil
		}
		at := time.Since(begin)
		mark := report.Mark{At: at.Seconds(), What: e.String()}
		if err := s.happen(ctx, e); err != nil {
			return marks, fmt.Errorf("%s: %w", e, err)
		}
		mark.Done = time.Since(begin).Seconds()
		marks = append(marks, mark)
	}
	return marks, nil
}

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// happen makes an event happen, and returns when it has.
func (s *stack) happen(ctx context.Context, e event) error {
	switch e.kind {
	case eventAdd:
		if _, err := s.addMember(); err != nil || s.balancer == nil {
			return err
		}
		return s.reload(s.upstreams())
	case eventRestart:
		return s.restartRedis(ctx)
	}
	m := s.member(e.worker)
	if m == nil {
		return fmt.Errorf("there is no worker %s (any more)", e.worker)
	}
	switch e.kind {
	case eventKill:
		s.Stop(m.process, syscall.SIGKILL)
		return nil
	case eventPause:
		if err := m.process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		sleep(ctx, e.length)
		return m.process.Signal(syscall.SIGCONT)
	}
	return s.drain(ctx, m)
}

// reloadTime is for nginx to send nothing more to an upstream that is about to
// end.
const reloadTime = 500 * time.Millisecond

func (s *stack) drain(ctx context.Context, m *member) error {
	if s.balancer != nil {
		others := slices.DeleteFunc(s.upstreams(), func(addr string) bool { return addr == m.addr })
		if err := s.reload(others); err != nil {
			return err
		}
		sleep(ctx, reloadTime)
	}
	s.Forget(m.process)
	patience, cancel := context.WithTimeout(ctx, 2*drainTime)
	defer cancel()
	return m.process.Stop(patience)
}

func (s *stack) restartRedis(ctx context.Context) error {
	s.mu.Lock()
	s.restarted = true
	s.mu.Unlock()
	for i, p := range s.redis {
		s.Stop(p, syscall.SIGKILL)
		again, err := s.start(groupStore, p.Spec)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.redis[i] = again
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// member returns a worker that runs.
func (s *stack) member(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.name == name && m.runs() {
			return m
		}
	}
	return nil
}
