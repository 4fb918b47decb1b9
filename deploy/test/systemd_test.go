package test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

// systemd understands the units, which leave the programs the time to drain, and never give them up.
func TestUnits(t *testing.T) {
	programs := buildPrograms(t)
	for _, name := range []string{"router", "worker"} {
		text := read(t, "../systemd/keyway-"+name+".service")
		if !strings.Contains(text, "\nTimeoutStopSec=35\n") || !strings.Contains(text, "\nType=notify\n") {
			t.Errorf("%s does not wait for longer than %s, or is not told when it is ready", name, drainTimeout)
		}
		if !strings.Contains(text, "\nStartLimitIntervalSec=0\n\n[Service]\n") {
			t.Errorf("%s stays down after five failures in ten seconds", name)
		}
		unit := filepath.Join(t.TempDir(), "keyway-"+name+".service")
		text = strings.ReplaceAll(text, "/usr/local/bin/", programs+"/")
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
		if err != nil || strings.Contains(string(out), "keyway-"+name) {
			t.Errorf("systemd-analyze verify %s: %v (Debian: apt-get install systemd)\n%s", name, err, out)
		}
	}
}

// buildPrograms builds router and worker and returns their directory.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := cluster.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The programs tell systemd when they take requests, and when they leave.
func TestProgramsNotifySystemd(t *testing.T) {
	programs := buildPrograms(t)
	var gossip string
	for _, program := range []string{"router", "worker"} {
		socket := filepath.Join(t.TempDir(), "notify")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		args := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--new-cluster"}
		if gossip != "" {
			args = append(args, "--join", gossip)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, program), args...)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}()
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		_, gossip, _ = strings.Cut(strings.TrimSpace(line), "gossip ")
		said(t, conn, "READY=1")
		if program == "worker" { // the router goes on, which has the store
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			said(t, conn, "STOPPING=1")
		}
	}
}

func said(t *testing.T, conn *net.UnixConn, want string) {
	t.Helper()
	text := make([]byte, 100)
	if n, err := conn.Read(text); err != nil || string(text[:n]) != want {
		t.Errorf("systemd was told %q, %v, want %s", text[:n], err, want)
	}
}
