// Package redistest runs real redis-server processes for tests: alone, as a
// Cluster, behind a Sentinel, over TLS; and stops, kills, pauses and restarts
// them.
//
// A test that needs redis-server where there is none fails if the
// environment has CI=true, and is otherwise reported as skipped, with a word
// on how to get it. Beside examples/internal/needs this is the one place in Keyway
// that skips a test.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/internal/test/certs"
)

// How long a server may take to start, and a group of them to do something:
// a Sentinel that was held up for 2 s does nothing for the next 30.
const patience = 60 * time.Second

// Require returns if redis-server and redis-cli are installed; see the
// package's comment.
func Require(t testing.TB) {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		hint := program + " is not installed (Debian: apt-get install redis-server; macOS: brew install redis)"
		if os.Getenv("CI") == "true" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
}

// Server is a redis-server on 127.0.0.1. It ends with its test.
type Server struct {
	t    testing.TB
	port int
	dir  string
	args []string
	tls  *tls.Config // of clients; nil without TLS

	mu  sync.Mutex
	now *proc.Process // nil once it was ended
}

// Start starts a server on a free port. The configuration is given as on
// redis-server's command line: "--appendonly", "yes". By default nothing is
// persisted. With that, a server that is killed loses nothing which it has
// acknowledged; it waits for no disk.
func Start(t testing.TB, config ...string) *Server {
	t.Helper()
	Require(t)
	s := &Server{t: t, dir: t.TempDir(), args: config}
	s.startOnFreePort(func(port int) []string {
		return s.basics("--port", strconv.Itoa(port))
	})
	return s
}

func (s *Server) basics(args ...string) []string {
	return append([]string{"--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendfsync", "no", "--daemonize", "no"}, args...)
}

// startOnFreePort tries another port when somebody else was quicker.
func (s *Server) startOnFreePort(args func(port int) []string) {
	s.t.Helper()
	s.t.Cleanup(s.Kill)
	config := s.args
	var err error
	for range 5 {
		var addr string
		if addr, err = proc.FreeAddr(); err != nil {
			break
		}
		_, port, _ := strings.Cut(addr, ":")
		s.port, _ = strconv.Atoi(port)
		s.args = append(args(s.port), config...)
		if err = s.start(); err == nil {
			return
		}
		s.Kill()
	}
	s.t.Fatal(err)
}

func (s *Server) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p, err := proc.Begin(proc.Spec{
		Name: "redis-server", Program: "redis-server", Args: s.args,
		Run: func(cmd *exec.Cmd) error {
			cmd.SysProcAttr.Setpgid = false // so that Ctrl-C ends it with its test
			return cmd.Start()
		},
		Serves: func(context.Context) error {
			if !s.answers() {
				return errSilent
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.mu.Lock()
	s.now = p
	s.mu.Unlock()
	return p.AwaitReady(ctx)
}

var errSilent = errors.New("redistest: no answer")

// answers is false while the server still loads its data.
func (s *Server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if s.tls != nil {
		conn = tls.Client(conn, s.tls)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	got := string(answer[:n])
	return err == nil && (strings.HasPrefix(got, "+PONG") || strings.HasPrefix(got, "-NOAUTH"))
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is redis://host:port.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Stop ends the server as an operator would.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server as a crash would. A server that has ended may be
// killed again.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(how syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return
	}
	_ = s.now.Signal(how) // it may have ended by itself
	if how != syscall.SIGKILL {
		_ = s.now.Resume()
	}
	<-s.now.Done()
	s.now = nil
}

// Pause stops the process where it stands (SIGSTOP) until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		s.t.Fatal("redistest: the server is not running")
	}
	_ = s.now.Signal(sig) // it may have ended by itself
}

// Restart kills the server and starts it on the same port with what its
// configuration made it keep.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Again()
}

// RestartEmpty kills the server and starts it on the same port without data.
func (s *Server) RestartEmpty() {
	s.t.Helper()
	s.Kill()
	if err := errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700)); err != nil {
		s.t.Fatal(err)
	}
	s.Again()
}

// Again starts a server that has ended.
func (s *Server) Again() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// CLI runs redis-cli against the server and returns what it printed.
func (s *Server) CLI(args ...string) string {
	s.t.Helper()
	out, err := s.cli(args...)
	if err != nil {
		s.t.Fatalf("redistest: redis-cli %v: %v\n%s", args, err, out)
	}
	return out
}

func (s *Server) cli(args ...string) (string, error) {
	args = append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}, args...)
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// eventually polls until a condition of the servers holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("redistest: waited %v in vain until %s", patience, what)
}

// StartTLS starts a server that takes TLS alone, and returns the file of the
// certificate authority that its certificate is from.
func StartTLS(t testing.TB, config ...string) (s *Server, caFile string) {
	t.Helper()
	Require(t)
	certDir := t.TempDir()
	ca, err := certs.NewCA(certDir, "redistest")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := ca.Issue(certDir, "redis", certs.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	s = &Server{t: t, dir: t.TempDir(), args: config, tls: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
	s.startOnFreePort(func(port int) []string {
		return s.basics("--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
			"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", ca.File)
	})
	return s, ca.File
}
