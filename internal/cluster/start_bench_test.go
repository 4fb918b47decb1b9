package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

var startWorkers = flag.Int("start", 30, "how many workers BenchmarkStart starts at once")

// lostSessions counts sessions that workers log as lost.
type lostSessions struct{ n atomic.Int64 }

func (l *lostSessions) Write(b []byte) (int, error) {
	l.n.Add(int64(strings.Count(string(b), "session lost")))
	return len(b), nil
}

// BenchmarkStart starts many workers at once over a Redis server that holds nothing, with a
// router. It measures how long they take until each serves all that the ring gives it, of which a
// quarantine is one TTL, and then what they cost without requests.
func BenchmarkStart(b *testing.B) {
	programs, err := built()
	if err != nil {
		b.Fatal(err)
	}
	server, lost := redistest.Start(b), new(lostSessions)
	ctx, cancel := context.WithTimeout(b.Context(), 4*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all []*cluster.Process
	run := func(name, program string, args ...string) *cluster.Process {
		p, err := cluster.Start(ctx, name, program, lost, append(args, "--redis", server.URL())...)
		if err != nil {
			b.Error(err)
			return nil
		}
		b.Cleanup(p.Kill)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
		return p
	}
	router := run("router", programs.Router, "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	if router == nil {
		return
	}
	began := time.Now()
	var starts sync.WaitGroup
	for i := range *startWorkers {
		starts.Go(func() { run(fmt.Sprintf("w%03d", i), programs.Worker, "--join", router.Gossip) })
	}
	starts.Wait()
	settled, atStart := time.Since(began), lost.n.Load()
	if b.Failed() {
		return
	}
	used := func() (workers, others, store float64) { // others: the router
		for _, p := range all {
			ms := processorTime(b, strconv.Itoa(p.Pid()))
			if p == router {
				others = ms
			} else {
				workers += ms
			}
		}
		for line := range strings.Lines(server.CLI("info", "server")) {
			if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
				store = processorTime(b, pid)
			}
		}
		return workers, others, store
	}
	<-time.After(10 * time.Second)
	for b.Loop() {
		since := time.Now()
		workers, others, store := used()
		<-time.After(20 * time.Second)
		workers2, others2, store2 := used()
		took := time.Since(since).Seconds()
		b.ReportMetric((workers2-workers)/took, "workers-ms/s")
		b.ReportMetric((others2-others)/took, "router-ms/s")
		b.ReportMetric((store2-store)/took, "redis-ms/s")
	}
	b.ReportMetric(settled.Seconds(), "s-to-settle")
	b.ReportMetric(float64(atStart), "lost-sessions")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns how many milliseconds of a processor a process has used, to the nearest ten.
func processorTime(b *testing.B, pid string) float64 {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) * 10
}
