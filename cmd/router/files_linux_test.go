package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// filesVariable makes the test's program a router that may have so many files open.
const filesVariable = "TEST_ROUTER_FILES"

func TestMain(m *testing.M) {
	if n, err := strconv.ParseUint(os.Getenv(filesVariable), 10, 32); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		main()
	}
	os.Exit(m.Run())
}

// startWithFiles starts a router, in a process of its own that may have so many files open.
func startWithFiles(t *testing.T, files int, args ...string) *startRouter {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(free, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprint(filesVariable, "=", files))
	r := &startRouter{stdout: &output{ready: make(chan struct{})}, stderr: &output{}, ended: make(chan error, 1)}
	r.stop = func() { cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = r.stdout, r.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- cmd.Wait() }()
	r.await(t)
	return r
}

// streams opens so many streams on one connection of HTTP/2, and returns how many were answered
// with 200, when all have an answer. They go on until the connection is closed, which is alive:
// it answers pings.
func streams(t *testing.T, base string, count int, fields ...string) (taken int) {
	t.Helper()
	var head strings.Builder
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		fmt.Fprintf(&head, "\x00%c%s%c%s", len(name), name, len(value), value) // a literal of HPACK
	}
	conn := kit.Dial(t, base)
	kit.GreetH2(t, conn)
	io.WriteString(conn, kit.H2Frame(8, 0, 0, "\x00\x10\x00\x00")) // room for the answers
	answers := make(chan byte, count)                              // the first of each head
	go func() {
		defer close(answers)
		in := bufio.NewReader(conn)
		for {
			var frame [9]byte
			if _, err := io.ReadFull(in, frame[:]); err != nil {
				return
			}
			payload := make([]byte, int(frame[0])<<16|int(frame[1])<<8|int(frame[2]))
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			switch {
			case frame[3] == 1:
				answers <- payload[0]
			case frame[3] == 6 && frame[4] == 0:
				io.WriteString(conn, kit.H2Frame(6, 1, 0, string(payload)))
			}
		}
	}()
	const atOnce = 16 // more may need over a second to be dialled, on a busy machine
	for i := range count + atOnce {
		if i < count {
			io.WriteString(conn, kit.H2Frame(1, 4, uint32(2*i+1), head.String()))
		}
		if i < atOnce {
			continue
		}
		status, ok := <-answers
		if !ok {
			t.Fatalf("the connection ended after %d answers", i-atOnce)
		}
		if status == 0x88 { // HPACK's :status 200
			taken++
		}
	}
	return taken
}

// serve answers requests, and reads bodies to their end behind the answer's head.
func serve(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if r.Method != http.MethodPost {
		io.WriteString(w, "served")
		return
	}
	rc.EnableFullDuplex()
	rc.Flush()
	io.Copy(io.Discard, r.Body)
}

// Few connections of HTTP/2 whose requests each need a file leave files for other clients, for
// admin, gossip and the store. What exceeds the bound is told so and logged.
func TestTrapRouterKeepsFilesForItself(t *testing.T) {
	upload := []string{":method=POST", ":scheme=http", ":path=/", ":authority=h"}
	const files, connections, each, bound = 1024, 5, 248, 384
	upstream := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(upstream.CloseClientConnections)
	r := startWithFiles(t, files, "--without-key", upstream.URL)
	own(t, r, http.HandlerFunc(serve))
	taken := 0
	for range connections {
		taken += streams(t, r.requests, each, upload...)
	}
	if taken != bound {
		t.Errorf("%d were taken, want %d", taken, bound)
	}
	for range 3 {
		if status, body := fetch(t, r.requests, "other"); status != 200 || body != "served" {
			t.Errorf("another client: %d %s", status, body)
		}
	}
	if status, body := fetch(t, r.admin+"/readyz", ""); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	refused := fmt.Sprintf("keyway_router_problems_total{kind=%q} %d\n", "onward-full", connections*each-bound)
	if _, body := fetch(t, r.admin+"/metrics", ""); !strings.Contains(body, refused) {
		t.Errorf("/metrics has no %s", refused)
	}
	late, err := gossip.Start(t.Context(), gossip.Config{
		Self:  ring.Member{Name: "late", Role: ring.RoleRouter, State: ring.StateActive, Addr: "127.0.0.1:1"},
		Seeds: []string{r.gossip},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	kit.Eventually(t, "a member that joined late is known", func() bool {
		_, body := fetch(t, r.admin+"/members", "")
		return strings.Contains(body, `"late"`)
	})
	if log := r.stderr.String(); strings.Contains(log, "too many open files") || !strings.Contains(log, "--max-connections") {
		t.Errorf("logged: %s", log)
	}
}
