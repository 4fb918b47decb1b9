//go:build linux

package proc

import (
	"strings"
	"syscall"
	"testing"
)

func newStage(t *testing.T) *Stage {
	t.Helper()
	s, err := NewStage("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStage(t *testing.T) {
	s := newStage(t)
	p, err := s.Start(t.Context(), Spec{Name: "a", Program: "sh", Args: []string{"-c", "echo is it ready; while :; do :; done"}, Ready: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	if p.ReadyLine() != "is it ready" || p.Ended() != nil {
		t.Errorf("ready line %q, ended: %v", p.ReadyLine(), p.Ended())
	}
	for before := CPU(p); CPU(p) == before; {
		if t.Context().Err() != nil {
			t.Fatal("it uses no CPU")
		}
	}
	stubborn, err := s.Start(t.Context(), Spec{Name: "b", Program: "sh", Args: []string{"-c", "echo ready; exec sleep 1000"}, Ready: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop(p, syscall.SIGKILL)
	if p.Ended() == nil || stubborn.Ended() != nil {
		t.Errorf("after Stop of one: %v, the other: %v", p.Ended(), stubborn.Ended())
	}
	s.Close()
	if stubborn.Ended() == nil {
		t.Error("it outlives the stage")
	}
	if _, err := s.Start(t.Context(), Spec{Name: "c", Program: "true"}); err == nil {
		t.Error("a process started on a closed stage")
	}
}

func TestNotReady(t *testing.T) {
	s := newStage(t)
	_, err := s.Start(t.Context(), Spec{Name: "a", Program: "sh", Args: []string{"-c", "echo no port left; exit 3"}, Ready: "ready"})
	if err == nil || !strings.Contains(err.Error(), "no port left") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a process that failed: %v", err)
	}
}

// TestCPUOfEndedChildren: what a child has used is not forgotten when it ends.
func TestCPUOfEndedChildren(t *testing.T) {
	s := newStage(t)
	const busy = "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo ready; exec sleep 1000"
	p, err := s.Start(t.Context(), Spec{Name: "a", Program: "sh", Args: []string{"-c", busy}, Ready: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	if living, all := CPUTime(p.Pid()), CPU(p); all < living+tick {
		t.Errorf("%v with the child that has ended, %v without", all, living)
	}
}
