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

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// TestMain makes the test's program one of a measurement's when it is started
// as such.
func TestMain(m *testing.M) {
	if os.Getenv("HOP_CHILD") != "" {
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

// built returns the programs, built once for all tests.
var built = sync.OnceValues(func() (cluster.Programs, error) {
	return cluster.Build(context.Background(), os.TempDir())
})

// measure runs a measurement and returns what it prints.
func measure(t *testing.T, args ...string) (string, error) {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), append(args, "--router", programs.Router, "--worker", programs.Worker), io.MultiWriter(&out, t.Output()), t.Output())
	return out.String(), err
}

// needs stops a test that lacks programs, with a word on how to get them.
func needs(t *testing.T, programs ...string) {
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
	needs(t, "haproxy", "nginx", "redis-server")
	out, err := measure(t, "--rounds", "1", "--seconds", "0.05", "--warm-up", "10ms", "--keys", "50", "--idle", "200")
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

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"jump"}, {"--jump"}, {"--scenarios", "none"}, {"--rounds", "0"}} {
		if err := run(t.Context(), args, t.Output(), t.Output()); cli.ExitCode(err) != 2 {
			t.Errorf("%q: %v, want an error of usage", args, err)
		}
	}
}

func TestSeries(t *testing.T) {
	if m := (series{5, 1, 3}).median(); m != 3 {
		t.Errorf("median of 5, 1, 3: %v", m)
	}
	if m := (series{4, 1, 3, 2}).median(); m != 2.5 {
		t.Errorf("median of 4, 1, 3, 2: %v", m)
	}
	if r := (series{2, 3, 8}).over(series{1, 0, 4}); len(r) != 2 || r[0] != 2 || r[1] != 2 {
		t.Errorf("ratios %v, want 2, 2", r)
	}
}

func TestPackageOf(t *testing.T) {
	for symbol, want := range map[string]string{
		"github.com/keyway-go/keyway/gateway.(*Router).ServeHTTP": "gateway",
		"net/http.(*conn).serve":                                  "net/http",
		"slices.pdqsort[go.shape.struct { net/http.key string }]": "slices",
		"runtime.mallocgc":                                        "runtime: memory",
		"runtime.gcDrain":                                         "runtime: garbage collector",
		"runtime.schedule":                                        "runtime: goroutines and the rest",
		"main":                                                    "haproxy",
	} {
		if got := packageOf("haproxy", symbol); got != want {
			t.Errorf("%s is of %q, want %q", symbol, got, want)
		}
	}
}
