package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/cluster"
)

// output gives a program's lines one by one.
type output struct {
	t     *testing.T
	lines *bufio.Scanner
	all   strings.Builder
}

// await returns the next line that matches.
func (o *output) await(pattern string) []string {
	o.t.Helper()
	for o.lines.Scan() {
		fmt.Fprintln(&o.all, o.lines.Text())
		if m := regexp.MustCompile(pattern).FindStringSubmatch(o.lines.Text()); m != nil {
			return m
		}
	}
	o.t.Fatalf("no line matches %s in:\n%s", pattern, &o.all)
	return nil
}

type row struct {
	requests string
	pid      int
}

func start(t *testing.T) (*exec.Cmd, *output, *bytes.Buffer, map[string]row) {
	t.Helper()
	dir := t.TempDir()
	if _, err := cluster.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Compile(t.Context(), ".", ".", filepath.Join(dir, "dev")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "dev"), "-free")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // it stops what it has started
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	out := &output{t: t, lines: bufio.NewScanner(stdout)}
	rows := make(map[string]row)
	for len(rows) < 4 {
		m := out.await(`^ +(router|w[0-9]) +(http://\S+) +http://\S+ +(\d+)$`)
		pid, _ := strconv.Atoi(m[3])
		rows[m[1]] = row{m[2], pid}
	}
	out.await("Ctrl-C")
	if strings.Contains(out.all.String(), "level=") {
		t.Errorf("the log is between the lines for the user:\n%s", &out.all)
	}
	return cmd, out, stderr, rows
}

// A worker that is stopped or killed is one line; the others go on, and
// Ctrl-C ends all of them with 0.
func TestWorkersComeAndGo(t *testing.T) {
	cmd, out, stderr, rows := start(t)
	send := func() {
		t.Helper()
		for i := range 20 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, rows["router"].requests, nil)
			req.Header.Set("X-Key", fmt.Sprint("order-", i))
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
		}
	}
	send()
	for _, tt := range []struct {
		worker string
		signal syscall.Signal
		how    string
	}{
		{"w2", syscall.SIGTERM, "left"},
		{"w3", syscall.SIGKILL, "was killed"},
	} {
		if err := syscall.Kill(rows[tt.worker].pid, tt.signal); err != nil {
			t.Fatal(err)
		}
		out.await(fmt.Sprintf(`%s \(pid %d\) %s; .* To start it again: \S+worker --name %s `, tt.worker, rows[tt.worker].pid, tt.how, tt.worker))
		if tt.signal == syscall.SIGTERM {
			send()
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	out.await("^stopping")
	var rest strings.Builder
	for out.lines.Scan() {
		rest.WriteString(out.lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 || rest.String() != "" {
		t.Errorf("ended with %v and %q %q, want 0 and nothing", err, rest.String(), stderr)
	}
	for name, r := range rows {
		if err := syscall.Kill(r.pid, 0); err == nil {
			t.Errorf("%s (pid %d) still runs", name, r.pid)
		}
	}
}

// Without its router the demo says so and leaves the workers alone.
func TestRouterIsKilled(t *testing.T) {
	cmd, out, _, rows := start(t)
	if err := syscall.Kill(rows["router"].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Not with --new-cluster: the workers may still serve what the store has lost.
	out.await(`router \(pid \d+\) was killed; .* To start it again: \S+router --listen \S+ --admin \S+ --gossip \S+$`)
	for _, w := range []string{"w1", "w2", "w3"} {
		if err := syscall.Kill(rows[w].pid, syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", w, err)
		}
		out.await(w + ` \(pid \d+\) was killed`)
	}
	out.await("Nothing of it runs any more")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
