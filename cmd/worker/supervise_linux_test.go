package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// programVariable makes the test's binary the program.
const programVariable = "TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(cli.Main("worker", run))
	}
	os.Exit(m.Run())
}

func supervised(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--supervise", "--lock-file", filepath.Join(t.TempDir(), "lock"))...)
	cmd.Env, cmd.Stderr = append(os.Environ(), programVariable+"=1"), t.Output()
	return cmd
}

// childOf returns the id of the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		var child int
		if text, _ := os.ReadFile(task); len(text) > 0 {
			if _, err := fmt.Sscan(string(text), &child); err == nil {
				return child
			}
		}
	}
	t.Fatal("no child")
	return 0
}

// TestSupervise: a worker that is killed is started again, is told what its supervisor is told, and
// its exit code is the supervisor's.
func TestSupervise(t *testing.T) {
	cmd := supervised(t, "--redis", "redis://127.0.0.1:1", "--log", "text", "--join", "127.0.0.1:1")
	cmd.Stderr = nil
	log := kit.Must(cmd.StderrPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			t.Log(lines.Text())
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the log ends without %q", want)
	}
	await("new incarnation")
	first := childOf(t, cmd.Process.Pid)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await("started again")
	await("new incarnation")
	second := childOf(t, cmd.Process.Pid)
	if second == first {
		t.Error("the same process")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if err := syscall.Kill(second, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the worker outlives its supervisor: %v", err)
	}
}

// TestSuperviseDiesFirst: a worker whose supervisor is killed is told to end, so that it hands its keys over.
func TestSuperviseDiesFirst(t *testing.T) {
	cmd := supervised(t, "--redis", "redis://127.0.0.1:1", "--log", "text", "--join", "127.0.0.1:1")
	cmd.Stderr = nil
	log := kit.Must(cmd.StderrPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(log); lines.Scan(); { // until the worker has ended
		if strings.Contains(lines.Text(), "new incarnation") {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Wait()
}

// TestSuperviseBadSettings: what cannot start is not started again.
func TestSuperviseBadSettings(t *testing.T) {
	cmd := supervised(t, "--redis", "redis://127.0.0.1:1", "--listen", "0.0.0.0:0", "--gossip", "0.0.0.0:0")
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
}
