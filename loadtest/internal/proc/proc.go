//go:build linux

// Package proc starts processes on chosen cores, reads how much CPU time they
// have used, and stops them: those of a [Stage] all at once, whatever happens.
package proc

import (
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Spec describes a process. A [Stage] sets its Log.
type Spec = proc.Spec

// Process is one that was started.
type Process = proc.Process

// FreeAddr returns an address of this machine that nobody listens on.
func FreeAddr() (string, error) { return proc.FreeAddr() }

// Find returns the path of a program; "" if there is none.
func Find(program string) string { return proc.Find(program) }

// childEnv is set for what [Self] describes: a test then runs as the program.
const childEnv = "LOADTEST_CHILD"

// IsChild reports whether this process is what [Self] describes.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Self describes a process that runs this program with two arguments: a role, and a configuration as JSON.
func Self(name, role string, cfg any) (Spec, error) {
	program, err := os.Executable()
	if err != nil {
		return Spec{}, err
	}
	arg, err := json.Marshal(cfg)
	return Spec{Name: name, Program: program, Args: []string{role, string(arg)}, Env: []string{childEnv + "=1"}}, err
}

// Stage holds the processes of a run. Make one with [NewStage].
type Stage struct {
	proc.Stage        // in whose directory all users may read
	Files      uint64 // that each process may open
	Keep       bool   // what is in Dir
}

// NewStage returns a stage with a directory, whose name has this one in it. The caller must call
// [Stage.Close]. If this process is killed, the stage's processes get SIGTERM from the kernel. They do too
// if the thread that started them ends, so no goroutine may end while it has one locked.
func NewStage(name string) (*Stage, error) {
	dir, err := os.MkdirTemp("", "keyway-"+name+"-")
	if err != nil {
		return nil, err
	}
	run := func(cmd *exec.Cmd) error {
		cmd.SysProcAttr.Pdeathsig, cmd.WaitDelay = syscall.SIGTERM, 3*time.Second
		return cmd.Start()
	}
	return &Stage{Stage: proc.Stage{Dir: dir, Run: run}, Files: raiseFileLimit()}, os.Chmod(dir, 0o755)
}

// Check returns an error if one of the processes has ended by itself.
func (s *Stage) Check() error {
	for _, p := range s.Dead() {
		return p.Ended()
	}
	return nil
}

// Close stops all processes, waits for their ends and removes the directory.
func (s *Stage) Close() {
	s.Stage.Close()
	if !s.Keep {
		_ = os.RemoveAll(s.Dir) // what is left is in the temporary directory
	}
}

// enoughFiles are more than any measurement opens. Some databases take memory for each that there may be.
const enoughFiles = 1 << 16

// raiseFileLimit lets this process and its children open as many files as the system allows, up to
// [enoughFiles], and returns how many. The runtime has raised its own limit
// already; only a call of Setrlimit lets children have it too.
func raiseFileLimit() uint64 {
	limit := syscall.Rlimit{Cur: enoughFiles, Max: enoughFiles}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil && syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // else it stays as it is
	}
	return limit.Cur
}
