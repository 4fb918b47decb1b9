package cluster_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

// words receives once for each write that contains the text.
type words struct {
	text string
	seen chan struct{}
}

func (w words) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.text) {
		w.seen <- struct{}{}
	}
	return len(b), nil
}

// SIGHUP, which a supervisor or a closed terminal may send, ends nothing: it
// is logged and requests go on.
func TestHangupIsIgnored(t *testing.T) {
	d := startDemo(t)
	hangups := words{"SIGHUP", make(chan struct{}, 2)}
	d.router.Kill()
	start := func(name, program string, args ...string) *cluster.Process {
		p, err := cluster.Start(t.Context(), name, program, hangups, args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	d.router = start("router", d.programs.Router, "--new-cluster", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	w := start("w1", d.programs.Worker, "--new-cluster", "--name", "w1", "--join", d.router.Gossip)
	if w.Admin != "" {
		t.Errorf("a worker without --admin says that its admin address is %q", w.Admin)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := d.send("k", "?hold=300ms"); err != nil {
			t.Errorf("a request during SIGHUP: %v", err)
		}
	})
	for _, p := range []*cluster.Process{d.router, w} {
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-hangups.seen:
		case <-p.Done():
			t.Fatalf("SIGHUP ended %s: %v", p.Name, p.Err())
		}
	}
	wg.Wait()
	stopCleanly(t, w, d.router)
}

// A program whose log and output nobody reads any more goes on; it ends by
// SIGTERM as ever, with 0.
func TestOutputThatNobodyReads(t *testing.T) {
	d := startDemo(t)
	for _, program := range []struct {
		path string
		args []string
	}{
		{d.programs.Router, []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}},
		{d.programs.Worker, []string{"--join", d.router.Gossip, "--new-cluster", "--session-ttl", d.ttl}},
	} {
		cmd := exec.Command(program.path, program.args...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		var said bytes.Buffer
		for b := make([]byte, 1); !strings.Contains(said.String(), "ready: "); {
			if _, err := stdout.Read(b); err != nil {
				t.Fatal(err)
			}
			said.Write(b)
		}
		stdout.Close()
		stderr.Close()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // it logs that it is leaving
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v", program.path, err)
		}
	}
}

// A worker is ready once its app answers; before, it says what it waits for.
func TestReadyWithItsApp(t *testing.T) {
	d := startDemo(t)
	waits := words{"keyway worker waits for its app: requests ", make(chan struct{}, 1)}
	ready := words{"keyway worker ready: requests ", make(chan struct{}, 1)}
	socket := filepath.Join(t.TempDir(), "app")
	w, err := cluster.Start(t.Context(), "w1", d.programs.Worker, io.MultiWriter(waits, ready), "--join", d.router.Gossip, "--new-cluster", "--session-ttl", d.ttl, "--upstream", "unix://"+socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	select {
	case <-waits.seen:
	case <-ready.seen:
		t.Fatal("the worker says that it is ready while no app answers")
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	<-ready.seen
	stopCleanly(t, w)
}

func stopCleanly(t *testing.T, processes ...*cluster.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range processes {
		if err := p.Stop(ctx); err != nil {
			t.Errorf("%s ended with %v", p.Name, err)
		}
	}
}

func TestVersion(t *testing.T) {
	d := startDemo(t)
	for path, name := range map[string]string{d.programs.Router: "router", d.programs.Worker: "worker"} {
		out, err := exec.Command(path, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), "keyway "+name+" ") || !strings.Contains(string(out), " go1.") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s --version: %v: %q", name, err, out)
		}
	}
}

// A worker is killed while 200 requests wait for a key there that another one holds:
// that one may have run, and all others go to the worker that comes after it, where
// each runs once.
func TestKilledWithAQueue(t *testing.T) {
	const crowd = 200
	d := startDemoWith(t, "10m")
	lock := filepath.Join(t.TempDir(), "lock")
	w := d.add("w1", "--lock-file", lock, "--queue-per-key", strconv.Itoa(crowd))
	if _, err := d.send("k", ""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	tokens := make(chan int64, crowd+1)
	failed := make(chan error, crowd+1)
	send := func(query string) {
		wg.Go(func() {
			a, err := d.send("k", query)
			for err != nil && strings.Contains(err.Error(), "status 429") { // the place in the queue is a probe's
				a, err = d.send("k", query)
			}
			if err != nil {
				failed <- err
				return
			}
			tokens <- a.Token
		})
	}
	// probe returns what a request is answered that leaves when it has to wait.
	probe := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.router.Listen+"/", nil)
		req.Header.Set("X-Key", "k")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "waits"
		}
		res.Body.Close()
		return res.Status
	}
	send("?hold=1m")
	for probe() != "waits" {
	}
	for range crowd {
		send("")
	}
	for probe() != "429 Too Many Requests" {
	}
	if _, err := d.send("another", "?hold=1s"); err != nil { // the router knows by now who waits
		t.Fatal(err)
	}
	w.Kill()
	d.add("w1", "--lock-file", lock)
	wg.Wait()
	close(failed)
	close(tokens)
	for err := range failed {
		if !strings.Contains(err.Error(), "status 502") || len(failed) > 0 {
			t.Errorf("one more request failed: %v", err)
		}
	}
	ran := map[int64]bool{}
	for token := range tokens {
		ran[token] = true
	}
	if len(ran) != crowd {
		t.Errorf("%d requests have run, want %d", len(ran), crowd)
	}
}
