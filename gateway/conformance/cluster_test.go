package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/keyway-go/keyway"                // what the programs consist of,
	_ "github.com/keyway-go/keyway/gateway/router" // so that go test runs anew
	_ "github.com/keyway-go/keyway/internal/cli"   // when it changes
	programs "github.com/keyway-go/keyway/internal/cluster"
)

// bin is the directory of the programs under test and of those that test them.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "conformance"); err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(bin)
	if _, err := programs.Build(context.Background(), bin); err != nil {
		log.Print(err)
		return 1
	}
	for name, pkg := range map[string]string{
		"grpc-client": "google.golang.org/grpc/interop/client",
		"grpc-server": "google.golang.org/grpc/interop/server",
		"h2spec":      "github.com/summerwind/h2spec/cmd/h2spec",
	} {
		if err := programs.Compile(context.Background(), ".", pkg, filepath.Join(bin, name)); err != nil {
			log.Print(err)
			return 1
		}
	}
	return m.Run()
}

// cluster is a router and a worker that run until the test ends.
type cluster struct {
	router string // host:port of its requests
	admin  string
}

// settled bounds what has to happen on this machine alone.
const settled = time.Minute

var readyLine = regexp.MustCompile(`requests (?:https?://)?([^,\s]+)(?:.*admin http://([^,\s]+))?.*gossip (\S+)`)

// start starts a program, and returns what its ready line says.
func start(t *testing.T, name string, args ...string) (requests, admin, gossip string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	cmd.Stderr = &logged
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(settled, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", name, logged.String())
		}
	})
	late := time.AfterFunc(settled, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if f := readyLine.FindStringSubmatch(lines.Text()); f != nil {
			go io.Copy(io.Discard, out)
			return f[1], f[2], f[3]
		}
	}
	t.Fatalf("%s is not ready", name)
	return "", "", ""
}

// newCluster starts a router with the flags, and a worker with its demo app, or
// in front of an app. Each host is a key.
func newCluster(t *testing.T, app string, flags ...string) *cluster {
	t.Helper()
	c := new(cluster)
	var gossip string
	args := append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--new-cluster", "--key", "host"}, flags...)
	c.router, c.admin, gossip = start(t, "router", args...)
	worker := []string{"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--join", gossip, "--admin", "127.0.0.1:0", "--name", "w1"}
	if app != "" {
		worker = append(worker, "--upstream", app)
	}
	start(t, "worker", worker...)
	return c
}

// freeAddr returns an address for another project's server, which nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// split returns host and port of an address.
func split(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// program runs a program that tests one, and returns what it printed.
func program(t *testing.T, limit time.Duration, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%w after %v: %w", ctx.Err(), limit, err)
	}
	return string(out), err
}
