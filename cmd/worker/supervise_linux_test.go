package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
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

// TestSuperviseTriesAgain: a worker that cannot be started again at once is started when it can.
func TestSuperviseTriesAgain(t *testing.T) {
	cmd := supervised(t, "--redis", "redis://127.0.0.1:1", "--log", "text", "--join", "127.0.0.1:1")
	program := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(program, kit.Must(os.ReadFile(os.Args[0])), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Stderr = program, nil
	log := kit.Must(cmd.StderrPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Error(err)
		}
	}
	tried := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		t.Log(lines.Text())
		switch line := lines.Text(); {
		case strings.Contains(line, "new incarnation") && !tried:
			rename(program, program+".away")
			if err := syscall.Kill(childOf(t, cmd.Process.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(line, "cannot be started again") && !tried:
			tried = true
			rename(program+".away", program)
		case strings.Contains(line, "new incarnation"):
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !tried {
		t.Errorf("after SIGTERM: %v; a start has failed: %t", err, tried)
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

// killedApp works on a request for 300 ms after its connection has ended, and takes no other one meanwhile.
type killedApp struct {
	t       *testing.T
	works   atomic.Bool
	entered chan struct{} // receives when it begins a request that it does not answer
	ended   atomic.Int64  // of these
}

func (a *killedApp) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !a.works.CompareAndSwap(false, true) {
		a.t.Error("the app got a request for the key while it worked on another one")
	}
	defer a.works.Store(false)
	if r.URL.Path != "/works" {
		return
	}
	a.entered <- struct{}{}
	<-r.Context().Done()
	time.Sleep(300 * time.Millisecond) // its work, which it must end first
	a.ended.Add(1)
}

// TestTrapKilledSidecar: a supervised sidecar is killed. Its keys are answered again long before the grace of its app is
// over: at once if the app did nothing, and otherwise when the app has ended.
func TestTrapKilledSidecar(t *testing.T) {
	t.Run("idle app", func(t *testing.T) { killSidecar(t, false) })
	t.Run("busy app", func(t *testing.T) { killSidecar(t, true) })
}

func killSidecar(t *testing.T, busy bool) {
	const grace = 18 * time.Second // 0.15 TTL
	dir, at := t.TempDir(), kit.FreeAddr(t)
	settings := ring.Settings{TTL: 2 * time.Minute, Ring: ring.Config{Partitions: 16}}
	node := kit.Must(keyway.Start(t.Context(), keyway.Config{Name: "node", Join: []string{at}, Settings: settings, NewCluster: true}))
	defer node.Close()
	door := kit.Must(node.Handler(http.NotFoundHandler(), router.Config{Keys: kit.KeySources(t, "header:X-Key")}))
	app := &killedApp{t: t, entered: make(chan struct{})}
	listener := kit.Must(net.Listen("unix", filepath.Join(dir, "app")))
	server := &http.Server{Handler: app}
	go server.Serve(listener)
	defer server.Close()
	cmd := supervised(t, "--name", "sidecar", "--join", at, "--session-ttl", settings.TTL.String(), "--partitions", "16", "--upstream", "unix://"+listener.Addr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	key := ""
	kit.Eventually(t, "the sidecar owns a key", func() bool {
		for i := range 64 {
			key = fmt.Sprint("k", i)
			if owner, err := node.Owner(key); err == nil && owner.Name == "sidecar" {
				return true
			}
		}
		return false
	})
	ask := func(path string) int {
		r := httptest.NewRequest(http.MethodPost, path, nil).WithContext(t.Context())
		r.Header.Set("X-Key", key)
		rw := httptest.NewRecorder()
		door.ServeHTTP(rw, r)
		return rw.Code
	}
	kit.Eventually(t, "the sidecar answers", func() bool { return ask("/") == http.StatusOK })
	var asked sync.WaitGroup
	if busy {
		asked.Go(func() { ask("/works") })
		<-app.entered
	}
	killed := time.Now()
	if err := syscall.Kill(childOf(t, cmd.Process.Pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the key is answered again", func() bool { return ask("/") == http.StatusOK })
	if took := time.Since(killed); took > grace/2 {
		t.Errorf("the key is answered again after %v", took)
	}
	asked.Wait()
	if app.ended.Load() > 0 != busy {
		t.Errorf("the app has ended %d requests late, want one: %t", app.ended.Load(), busy)
	}
}
