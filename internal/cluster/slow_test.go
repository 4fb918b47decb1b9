//go:build linux

package cluster_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

// Ten thousand clients that are slow with their heads get a clear answer in the
// end, others are served meanwhile, and nothing stays behind in the router.
func TestTenThousandSlowClients(t *testing.T) {
	clients := 10_000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := int(min(limit.Cur, 1<<20)) - 500; clients > most { // both ends have to have that many files
		t.Logf("%d clients only: no process may have more than %d files", most, limit.Cur)
		clients = most
	}
	d := startDemo(t, "w1")
	d.settle(1)
	before := files(t, d.router)

	conns := make([]net.Conn, clients)
	for i := range conns {
		c, err := net.Dial("tcp", d.router.Listen)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\nX-Pad"); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		conns[i] = c
	}
	d.sendAll(100, 10, "")

	var mu sync.Mutex
	outcomes := make(map[string]int)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			outcome := slowly(c, i%2 == 0)
			mu.Lock()
			outcomes[outcome]++
			mu.Unlock()
		})
	}
	wg.Wait()
	t.Logf("%d clients: %v", clients, outcomes)
	for outcome := range outcomes {
		if outcome != "400" && outcome != "closed" { // who took more than 10 s is not answered
			t.Errorf("outcome %q", outcome)
		}
	}
	if outcomes["400"] == 0 {
		t.Error("nobody was answered")
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for files(t, d.router) > before+20 {
		select {
		case <-poll.C:
		case <-t.Context().Done():
			t.Fatal("the router keeps connections")
		}
	}
	d.sendAll(100, 10, "")
}

// slowly ends a head that has no key, or leaves it as it is, and says what came
// of it.
func slowly(c net.Conn, end bool) string {
	if end {
		if _, err := io.WriteString(c, ": x\r\nConnection: close\r\n\r\n"); err != nil {
			return "closed"
		}
	} else if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "closed"
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "closed"
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err.Error()
	}
	return fmt.Sprint(res.StatusCode)
}

// files returns how many files a process has open.
func files(t *testing.T, p *cluster.Process) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
