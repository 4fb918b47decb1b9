//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/hopbench/proc"
)

// TestMain makes the test's program one of a measurement's when it is started
// as such.
func TestMain(m *testing.M) {
	if os.Getenv("HOPBENCH_CHILD") != "" {
		main()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process of a measurement takes a second to end
	dir, err := os.MkdirTemp("", "keyway-hopbench-test-")
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

// builtRouter returns the path of cmd/router, built once for all tests.
var builtRouter = sync.OnceValues(func() (string, error) {
	programs, err := cluster.Build(context.Background(), os.TempDir())
	return programs.Router, err
})

// measure runs a measurement and returns what it prints.
func measure(t *testing.T, args ...string) (string, error) {
	t.Helper()
	router, err := builtRouter()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), append(args, "--router", router), io.MultiWriter(&out, t.Output()), t.Output())
	return out.String(), err
}

// needs stops a test that lacks programs, with a word on how to get them.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if proc.Find(program) == "" {
			t.Fatalf("%s is not installed. As root: scripts/deps $(cat internal/hopbench/debian-packages)", program)
		}
	}
}

// TestHop gives each proxy a moment in each scenario and looks at the tables.
func TestHop(t *testing.T) {
	t.Parallel()
	needs(t, "haproxy", "nginx", "redis-server")
	out, err := measure(t, "hop", "--rounds", "1", "--seconds", "0.05", "--warm-up", "10ms", "--keys", "50", "--idle", "200")
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

// TestE2E gives each row a moment of each workload, and looks at the tables.
func TestE2E(t *testing.T) {
	t.Parallel()
	needs(t, "nginx", "redis-server")
	out, err := measure(t, "e2e", "--rounds", "1", "--seconds", "0.05", "--warm-up", "10ms")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads() {
		_, table, ok := strings.Cut(out, "\n"+w.title)
		if !ok {
			t.Errorf("no table %q", w.title)
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for _, s := range stacks() {
			if !strings.Contains(table, " "+s.name+"  ") {
				t.Errorf("%s: no row for %s", w.name, s.name)
			}
		}
	}
}

// TestE2EFindsOverlaps measures a design that does not exclude.
func TestE2EFindsOverlaps(t *testing.T) {
	t.Parallel()
	needs(t, "nginx", "redis-server")
	_, err := measure(t, "e2e", "--rows", "broken", "--workloads", "wait", "--rounds", "1", "--seconds", "0.3", "--wait", "5ms")
	if !errors.Is(err, errIncorrect) {
		t.Errorf("error %v, want %v", err, errIncorrect)
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{nil, {"jump"}, {"hop", "--scenarios", "none"}, {"hop", "--rounds", "0"}, {"e2e", "--rows", "none"}, {"e2e", "--workloads", ""}} {
		if err := run(t.Context(), args, t.Output(), t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestCounters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters")
	mine, err := openCounters(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	others, err := openCounters(path, 2) // as in another process
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		mine.critical("k000001", 0)
		others.critical("k000001", 0)
	}
	if n, ok := mine.critical("k000001", time.Microsecond); n != 7 || !ok {
		t.Errorf("the value is %d, %t, want 7, true", n, ok)
	}
	for _, key := range []string{"", "k", "k000002", "k1", "k-00001"} {
		if _, ok := mine.critical(key, 0); ok {
			t.Errorf("key %q was accepted", key)
		}
	}
	if v := others.verdict(); v != (verdict{executions: 7}) {
		t.Errorf("verdict %+v of seven executions in turn", v)
	}
	mine[0].running.Store(1) // somebody is inside
	others.critical("k000000", 0)
	others[0].value = 0 // and writes back what it had read
	if v := mine.verdict(); v != (verdict{executions: 8, overlaps: 1, lost: 1}) {
		t.Errorf("verdict %+v, want an overlap and a lost update", v)
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
