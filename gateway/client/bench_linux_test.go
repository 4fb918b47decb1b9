package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// benchRole makes the test's program one of the processes of BenchmarkClientCPU.
const benchRole = "KEYWAY_BENCH_ROLE"

// BenchmarkRole is a process of BenchmarkClientCPU: a worker, or a router in front of
// one. It prints where it takes requests, and ends with its input.
func BenchmarkRole(t *testing.B) {
	role, owner, _ := strings.Cut(os.Getenv(benchRole), " ")
	switch role {
	case "worker":
		c := site.New(t, 4096)
		w := c.StartReady()
		answer := []byte(`{"key":"4711","count":1}`)
		owner = w.Listen(t, w.Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header()["Content-Type"] = []string{"application/json"}
			rw.Header()["Content-Length"] = []string{strconv.Itoa(len(answer))}
			rw.Write(answer)
		})))
	case "router":
		rt := site.NewRouter(t, router.Config{Members: benchMembers(t, owner)})
		l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
		site.ServeRouter(t, rt, l)
		owner = l.Addr().String()
	default:
		t.Skip("a process of BenchmarkClientCPU")
	}
	fmt.Print("\nlistening ", owner, "\n") // behind the benchmark's name
	io.Copy(io.Discard, os.Stdin)
}

// benchMembers is a view of one worker.
func benchMembers(t testing.TB, addr string) *hub.Handle {
	m := site.Member("w1", addr)
	m.Link = true
	return hub.Of(m)
}

// startRole starts a process, and returns its id and where it takes requests.
func startRole(b *testing.B, role string) (pid int, addr string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkRole$", "-test.benchtime=1x")
	cmd.Env = append(os.Environ(), benchRole+"="+role)
	in := kit.Must(cmd.StdinPipe())
	out := kit.Must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			go io.Copy(io.Discard, out)
			return cmd.Process.Pid, at
		}
	}
	b.Fatalf("no %s", role)
	return 0, ""
}

// cpuOf returns the processor time that a process has used.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	if pid == os.Getpid() {
		return kit.CPU(b)
	}
	text := string(kit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))))
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	ticks := kit.Must(strconv.ParseInt(f[11], 10, 64)) + kit.Must(strconv.ParseInt(f[12], 10, 64))
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkClientCPU is a request to an owner in another process, by a client
// straight to it and by net/http's client through a router: the processor time of
// each of the processes. The callers are 64.
func BenchmarkClientCPU(b *testing.B) {
	owner, at := startRole(b, "worker")
	front, door := startRole(b, "router "+at)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client, err := client.New(client.Config{Members: benchMembers(b, at)})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	var through float64 // the router, of caller and owner
	for _, way := range []struct {
		name      string
		transport http.RoundTripper
		base      string
	}{{"through the router", transport, "http://" + door}, {"straight", client, "http://" + door}} {
		b.Run(way.name, func(b *testing.B) {
			web := &http.Client{Transport: way.transport}
			request := func(key int) {
				r := kit.Must(http.NewRequestWithContext(b.Context(), "GET", way.base+"/orders?id=4711", nil))
				r.Header["X-Key"] = []string{strconv.Itoa(key)}
				r.Header[gateway.HeaderKey] = r.Header["X-Key"]
				res, err := web.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				if n, err := io.Copy(io.Discard, res.Body); n != 24 || err != nil || res.StatusCode != 200 {
					b.Errorf("%d bytes, status %d, %v", n, res.StatusCode, err)
				}
				res.Body.Close()
			}
			pids := []int{os.Getpid(), owner, front}
			var before [3]time.Duration
			for i, pid := range pids {
				before[i] = cpuOf(b, pid)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for caller := range 64 {
				wg.Go(func() {
					for n := caller; n < b.N; n += 64 {
						request(n % 1000)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			var µs [3]float64
			for i, pid := range pids {
				µs[i] = float64((cpuOf(b, pid) - before[i]).Nanoseconds()) / 1000 / float64(b.N)
			}
			b.ReportMetric(µs[0], "caller-µs/op")
			b.ReportMetric(µs[1], "owner-µs/op")
			b.ReportMetric(µs[2], "router-µs/op")
			b.ReportMetric(µs[0]+µs[1], "caller+owner-µs/op")
			if way.transport == transport {
				through = µs[0] + µs[1]
				return
			}
			b.ReportMetric(through/(µs[0]+µs[1]), "through/straight") // without what the router itself takes
		})
	}
}
