//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// TestMain makes the test's program the app when it is started as such. It fails if the tests leave
// a process or a file.
func TestMain(m *testing.M) {
	if proc.IsChild() {
		main()
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each app takes a second to end
	dir, err := os.MkdirTemp("", "keyway-loadtest-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = os.Chmod(dir, 0o755) // PostgreSQL runs as another user
	os.Setenv("TMPDIR", dir)
	code := 1
	if err == nil {
		code = m.Run()
	}
	if left := children(); left != "" {
		fmt.Printf("these processes are left:\n%s", left)
		code = 1
	}
	if dirs, _ := filepath.Glob(filepath.Join(dir, "keyway-loadtest-*")); len(dirs) > 0 {
		fmt.Println("these directories are left:", dirs)
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// loadtest runs the command and returns its report and what it printed.
func loadtest(ctx context.Context, t *testing.T, stderr io.Writer, args ...string) (r *report.Report, printed string, err error) {
	t.Helper()
	out := t.TempDir()
	var b strings.Builder
	err = run(ctx, append(args, "--out", out, "--programs", programs(t)), io.MultiWriter(&b, t.Output()), stderr)
	if _, failed := os.Stat(filepath.Join(out, "results.json")); failed != nil {
		return nil, b.String(), err
	}
	if info, err := os.Stat(filepath.Join(out, "report.html")); err != nil || info.Size() == 0 {
		t.Errorf("no report: %v", err)
	}
	r = new(report.Report)
	if failed := json.Unmarshal(kit.Must(os.ReadFile(filepath.Join(out, "results.json"))), r); failed != nil {
		t.Fatal(failed)
	}
	return r, b.String(), err
}

// built is the directory of router and worker, built once for all tests.
var built = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "programs-"); err == nil {
		_, err = cluster.Build(context.Background(), dir)
	}
	return dir, err
})

func programs(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// children returns the processes that this one has started and that run.
func children() (left string) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return fmt.Sprintln("any, since the kernel does not tell them:", err)
	}
	for _, path := range lists {
		list, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for pid := range strings.FieldsSeq(string(list)) {
			line, _ := os.ReadFile("/proc/" + pid + "/cmdline") // empty if it has ended
			left += strings.ReplaceAll(string(line), "\x00", " ") + "\n"
		}
	}
	return left
}

// parse returns the options of a run, for which all programs are there.
func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parseOptions(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := missing(o.requirements()); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSmoke runs a little of everything on real processes.
func TestSmoke(t *testing.T) {
	t.Parallel()
	r, printed, err := loadtest(t.Context(), t, t.Output(), "--contenders", "plain,lock+local,hash,keyway,sidecar,none-router,none", "--workloads", "hot,hot-wait,zipf,zipf-wait",
		"--rounds", "1", "--time", "300ms", "--warm-up", "20ms", "--keys", "50", "--clients", "8")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(printed, "On one hot key Keyway answered") {
		t.Error("what changes for the reader is not printed first")
	}
	if len(r.Scenes) != 4 || len(r.Checks) != 7 {
		t.Fatalf("%d scenes, %d checks", len(r.Scenes), len(r.Checks))
	}
	for _, s := range r.Scenes {
		for _, row := range s.Rows {
			turn := row.Turns[0]
			if turn[report.Answered] == 0 || turn[report.Failed] != 0 || turn[report.CPU] <= 0 || turn[report.P50] <= 0 || turn[report.P99] < turn[report.P50] || turn[report.Fairness] < 0 || turn[report.Generator] <= 0 {
				t.Errorf("%s, %s: %+v", s.Name, row.Contender, turn)
			}
		}
	}
	hot := sceneOf(r, "hot")
	plain, keyway := hot.Row("plain").Turns[0], hot.Row("keyway").Turns[0]
	if plain[report.Commands] < 3 || keyway[report.Commands] > 1 { // a few by the clock, however few requests there are
		t.Errorf("commands per request: %.2f with a lock, %.2f of Keyway", plain[report.Commands], keyway[report.Commands])
	}
}

func sceneOf(r *report.Report, name string) *report.Scene {
	return r.Scenes[slices.IndexFunc(r.Scenes, func(s *report.Scene) bool { return s.Name == name })]
}

// TestStores gives each lock, and each way to exclude in another store, a
// moment.
func TestStores(t *testing.T) {
	t.Parallel()
	for names, work := range map[string]string{
		"redsync,redislock,rueidislock,redlock,quorum,mariadb,etcd,etcd+local,zookeeper,lock-service,streams": "",
		"pg-row,pg-advisory,pg-version": "-stock-postgres",
	} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			r, _, err := loadtest(t.Context(), t, t.Output(), "--contenders", names, "--workloads", "hot"+work,
				"--rounds", "1", "--time", "300ms", "--warm-up", "20ms", "--keys", "20", "--clients", "8", "--instances", "2")
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Scenes[0].Rows {
				if turn := row.Turns[0]; turn[report.Answered] == 0 || row.Contender != lockService && turn[report.Commands] < 0.5 || turn[groupStore] <= 0 {
					t.Errorf("%s: %+v, %v", row.Contender, turn, row.Failures)
				}
			}
		})
	}
}

// TestStock: a stock decrement that is not protected shows in the stock.
func TestStock(t *testing.T) {
	t.Parallel()
	o := parse(t, "--contenders", "none", "--workloads", "hot-stock-postgres", "--keys", "5")
	g, err := newStage(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s, err := g.startStack(t.Context(), o.chosen[0], o.scenes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, sc := range o.scenes {
		r, err := load.Run(t.Context(), load.Config{Addr: s.addr, Clients: 8, Mix: sc.mix, Time: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.since(t.Context(), sc.mix.Path)
		if err != nil {
			t.Fatal(err)
		}
		if v.Executions < r.Total || v.Lost == 0 {
			t.Errorf("%s: %d answered, %+v", sc.name, r.Total, v)
		}
		// What the records miss, the stock shows.
		s.judged.Executions -= 100
		if v, err = s.since(t.Context(), sc.mix.Path); err != nil || v.Lost != 100 {
			t.Errorf("%s: of 100 executions that sold nothing %d are noticed (%v)", sc.name, v.Lost, err)
		}
	}
}

// TestBlind: a contender that does not exclude is caught, and the command
// fails for one that ought to.
func TestBlind(t *testing.T) {
	t.Parallel()
	o := parse(t, "--contenders", "none", "--workloads", "hot", "--rounds", "1", "--time", "50ms")
	o.chosen[0].wrong = false
	r, err := measure(t.Context(), o, t.Output(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if r.OK() || r.Checks[0].Resource.Overlaps == 0 || r.Checks[0].Resource.Lost == 0 {
		t.Errorf("the lack of a lock is not noticed: %+v", r.Checks[0])
	}
}

// TestEvents lets everything happen that can, to Keyway and to a lock behind
// nginx.
func TestEvents(t *testing.T) {
	t.Parallel()
	const events = "100ms add, 600ms drain w1, 1400ms kill w2, 1600ms pause w3 100ms, 2s restart-redis"
	r, _, err := loadtest(t.Context(), t, t.Output(), "--contenders", "plain,keyway", "--workloads", "uniform", "--rounds", "1", "--time", "4s",
		"--keys", "50", "--rate", "400", "--ttl", "1s", "--events", events)
	if r == nil {
		t.Fatal(err)
	}
	for _, row := range r.Scenes[0].Rows {
		if len(row.Marks) != 5 || row.Turns[0][report.Answered] == 0 || row.Turns[0][report.Fairness] != -1 {
			t.Errorf("%s: %+v, %+v", row.Contender, row.Marks, row.Turns[0])
		}
	}
	// A plain lock loses its locks with the Redis, so that it may be wrong.
	if c := r.Checks[1]; c.Contender != "keyway" || !c.OK() {
		t.Errorf("%+v", c)
	}
}

// TestInterrupted: the end of the context ends everything.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	seen := writer(func(b []byte) (int, error) {
		if strings.Contains(string(b), "left") { // after the first turn
			cancel(enough)
		}
		return t.Output().Write(b)
	})
	r, _, err := loadtest(ctx, t, seen, "--contenders", "plain,keyway", "--rounds", "1000", "--time", "100ms", "--keys", "50", "--clients", "8")
	if r != nil || !errors.Is(err, enough) {
		t.Errorf("it ended with %v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestUsage(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"--contenders mutex", `there is no "mutex"; there are plain, `},
		{"--contenders plain,plain", "named twice"},
		{"--contenders keyway+local", "no lock to put a local mutex before"},
		{"--workloads cold", `there is no "cold"`},
		{"--workloads hot-hard", `there is no "hot-hard"`},
		{"--rate -1", "is below 0"},
		{"--clients 0", "--clients"},
		{"--time=2s --events=soon", "must begin with a time"},
		{"--time=2s --events=1s", "one of add"},
		{"--time=2s --events=2s_add", "does not end within"},
		{"--time=2s --events=1s_kill", "takes 1 argument"},
		{"--contenders=streams --time=2s --events=1s_add", "cannot do without its workers"},
		{"--bogus", "bogus"},
		{"extra", "extra"},
	}
	for _, tt := range tests {
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		err := run(t.Context(), args, io.Discard, io.Discard)
		if cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: exit code %d, %v", tt.args, cli.ExitCode(err), err)
		}
	}
}

func TestParseEvents(t *testing.T) {
	events, err := parseEvents("10s kill w1, 5s add, 15s pause w2 3s , 1m restart-redis, 20s drain w3")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(events), "[add kill w1 pause w2 3s drain w3 restart-redis]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"-1s add", "5s add w1", "5s kill", "5s pause w1", "5s pause w1 soon", "5s explode"} {
		if _, err := parseEvents(bad); err == nil {
			t.Errorf("%q is taken for an event", bad)
		}
	}
}

func TestMissing(t *testing.T) {
	if err := missing([]requirement{{"dash", []string{"/bin/sh"}}, {"no-such-package", []string{"/bin/sh", ""}}}); err == nil || !strings.Contains(err.Error(), "scripts/deps no-such-package (") {
		t.Errorf("a program that is not installed: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	r := &report.Report{Machine: report.Machine{Cores: 2, Load: 1.1}, Scenes: []*report.Scene{{Name: "hot", Rows: []*report.Row{
		{Contender: "quick", Turns: []report.Turn{{report.Generator: 0.51}}},
		{Contender: "slow", Turns: []report.Turn{{report.Generator: 0.49, report.Seconds: 4}}, Marks: []report.Mark{{What: "drain w1", Done: 4.3}, {What: "add", Done: 3.9}}},
	}}}}
	got := strings.Join(warnings(r), "\n")
	for _, want := range []string{"hot, quick: the load generator, which has one thread, was busy for 51 %", "hot, slow: drain w1 lasted beyond the measured time, until 4.3 s", "busy before the run (load 1.1"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Count(got, "slow") != 1 {
		t.Errorf("a warning without need:\n%s", got)
	}
}
