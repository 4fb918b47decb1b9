//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// TestMain makes the test's program one of a measurement's when it is started
// as such.
func TestMain(m *testing.M) {
	if proc.IsChild() {
		main()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process of a measurement takes a second to end
	dir, err := os.MkdirTemp("", "keyway-hop-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("TMPDIR", dir)
	code := m.Run()
	if code == 0 {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// built returns the directory of the programs, built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	_, err := cluster.Build(context.Background(), os.TempDir())
	return os.TempDir(), err
})

// measure runs a measurement and returns what it prints.
func measure(t *testing.T, args ...string) (string, error) {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), append(args, "--programs", programs), io.MultiWriter(&out, t.Output()), t.Output())
	return out.String(), err
}

// requires stops a test that lacks programs, with a word on how to get them.
func requires(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if proc.Find(program) == "" {
			t.Fatalf("%s is not installed. As root: scripts/deps $(cat loadtest/debian-packages)", program)
		}
	}
}

// TestHop gives each proxy a moment in each scenario and looks at the tables.
func TestHop(t *testing.T) {
	t.Parallel()
	requires(t, "haproxy", "nginx", "redis-server")
	out, err := measure(t, "--rounds", "1", "--seconds", "0.2", "--warm-up", "10ms", "--idle", "200")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios() {
		_, table, ok := strings.Cut(out, "\n"+s.title)
		if !ok {
			t.Errorf("no table %q", s.title)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for _, name := range s.field {
			if !strings.Contains(table, " "+name+"  ") {
				t.Errorf("%s: no row for %s", s.name, name)
			}
		}
	}
}

// A look at a proxy's memory finds some.
func TestWatch(t *testing.T) {
	stage, err := proc.NewStage("test")
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	p, err := stage.Start(t.Context(), proc.Spec{Name: "cat", Program: "sh", Args: []string{"-c", "echo ready; sleep 1000"}, Ready: "ready"})
	if err != nil {
		t.Fatal(err)
	}
	if seen := (&proxy{process: p}).watch(time.Minute)(); len(seen) != 1 || seen[0] < 4096 {
		t.Errorf("memory %v", seen)
	}
}

func TestGrowth(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values report.Series
		grows  bool
	}{
		{"same", report.Series{100e6, 101e6, 99e6, 100e6, 100e6, 100e6}, false},
		{"by less than a tenth", report.Series{200e6, 200e6, 203e6, 212e6, 218e6, 219e6}, false},
		{"by less than the floor", report.Series{10e6, 10e6, 15e6, 20e6, 25e6, 25e6}, false},
		{"by what it differs anyway", report.Series{50e6, 60e6, 110e6, 120e6, 120e6, 120e6, 115e6, 120e6}, false},
		{"but for a moment", report.Series{100e6, 100e6, 100e6, 190e6, 100e6, 102e6, 190e6, 101e6}, false},
		{"grows", report.Series{100e6, 101e6, 110e6, 120e6, 130e6, 140e6}, true},
		{"grows beside a moment", report.Series{100e6, 190e6, 102e6, 104e6, 106e6, 125e6, 127e6, 128e6, 129e6, 130e6}, true},
		{"shrinks", report.Series{140e6, 139e6, 110e6, 100e6, 100e6, 90e6}, false},
	} {
		first := make(report.Series, len(tt.values)/2) // what it was in the first third says nothing
		if before, after, grows := grown(append(first, tt.values...)); grows != tt.grows {
			t.Errorf("%s: %v from %v to %v", tt.name, grows, before, after)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"jump"}, {"--jump"}, {"--scenarios", "none"}, {"--rounds", "0"}, {"--seconds", "0"}} {
		if err := run(t.Context(), args, t.Output(), t.Output()); cli.ExitCode(err) != 2 {
			t.Errorf("%q: %v, want an error of usage", args, err)
		}
	}
}
