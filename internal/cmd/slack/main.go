// Command slack measures how late workers renew their sessions, idle and at full load, also
// with a fraction of a core each (a cgroup, which needs root). It prints a table. A default for
// --session-ttl has to leave room for the worst of it: docs/reliability.md. It needs redis-server.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/ring"
)

const (
	workers = 3
	every   = 20 * time.Millisecond // between two looks at a worker
	period  = 100_000               // of a quota, in µs: that of containers by default
)

func main() {
	ttl := flag.Duration("ttl", ring.Settings{}.WithDefaults().TTL, "session TTL of the workers")
	length := flag.Duration("t", 30*time.Second, "time of a row")
	clients := flag.Int("clients", 64, "connections that send requests one after the other, at full load")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *ttl, *length, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "slack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ttl, length time.Duration, clients int) error {
	dir, err := os.MkdirTemp("", "keyway-slack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := cluster.Build(ctx, dir)
	if err != nil {
		return err
	}
	load := func() string {
		text, _ := os.ReadFile("/proc/loadavg")
		return strings.Join(strings.Fields(string(text))[:1], "")
	}
	fmt.Printf("| cores for each worker | clients | requests/s | oldest confirmation | of what stops admission (%v) | sessions lost | load of the machine |\n|---|---|---|---|---|---|---|\n", ttl*7/10)
	for _, row := range []struct {
		cores   float64 // 0: all
		clients int
	}{{0, 0}, {0, clients}, {0.5, clients}, {0.2, clients}, {0.1, clients}, {0.05, clients}} {
		r, err := measure(ctx, dir, programs, ttl, length, row.cores, row.clients)
		if err != nil {
			return err
		}
		cores := "all"
		if row.cores > 0 {
			cores = fmt.Sprint(row.cores)
		}
		fmt.Printf("| %s | %d | %.0f | %v | %.0f %% | %.0f | %s |\n", cores, row.clients, float64(r.requests.Load())/length.Seconds(), r.oldest.Round(10*time.Millisecond), 100*float64(r.oldest)/float64(ttl*7/10), r.lost, load())
	}
	return nil
}

// result is what a row measures.
type result struct {
	requests atomic.Int64

	mu     sync.Mutex
	oldest time.Duration // since the sending of a session's latest renewal, at its worst
	lost   float64       // sessions
}

func measure(ctx context.Context, dir string, programs cluster.Programs, ttl, length time.Duration, cores float64, clients int) (r *result, err error) {
	addr, err := proc.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	redis, err := proc.Start(ctx, proc.Spec{Name: "redis", Program: "redis-server", Args: []string{"--port", port, "--save", "", "--dir", dir}, Dial: addr})
	if err != nil {
		return nil, err
	}
	defer redis.Kill()
	common := []string{"--redis", "redis://" + addr, "--session-ttl", ttl.String(), "--new-cluster"}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	router, err := cluster.Start(ready, "router", programs.Router, io.Discard, append(common, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0")...)
	if err != nil {
		return nil, err
	}
	defer router.Kill()
	r = new(result)
	running, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	var admins []string
	for i := range workers {
		name := fmt.Sprintf("w%d", i)
		w, err := cluster.Start(ready, name, programs.Worker, io.Discard, append(common, "--name", name, "--admin", "127.0.0.1:0", "--join", router.Gossip)...)
		if err != nil {
			return nil, err
		}
		defer w.Kill()
		if cores > 0 {
			ungroup, err := limit(w, cores)
			if err != nil {
				return nil, fmt.Errorf("a cgroup for a worker: %w", err)
			}
			defer ungroup()
		}
		admins = append(admins, w.Admin)
	}
	for _, admin := range admins {
		all.Go(func() { r.watch(running, "http://"+admin+"/metrics", ttl) })
	}
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	for i := range clients {
		all.Go(func() {
			for n := i; running.Err() == nil; n += clients {
				req, _ := http.NewRequestWithContext(running, http.MethodGet, "http://"+router.Listen+"/", nil)
				req.Header.Set("X-Key", strconv.Itoa(n%10_000))
				if res, err := web.Do(req); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					r.requests.Add(1)
				}
			}
		})
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return nil, errors.New("interrupted")
	}
	return r, nil
}

// watch reads a worker's slack until ctx ends. It does not see the slack between two reads.
func (r *result) watch(ctx context.Context, url string, ttl time.Duration) {
	for ; ctx.Err() == nil; time.Sleep(every) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			name, text, _ := strings.Cut(lines.Text(), " ")
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				continue
			}
			r.mu.Lock()
			switch name {
			case "keyway_worker_session_slack_seconds":
				r.oldest = max(r.oldest, ttl*7/10-time.Duration(value*float64(time.Second)))
			case "keyway_worker_sessions_lost_total":
				r.lost = max(r.lost, value)
			}
			r.mu.Unlock()
		}
		res.Body.Close()
	}
}

// limit puts a process into a new cgroup, of version 1 or 2, that has so many cores.
func limit(w *cluster.Process, cores float64) (remove func(), err error) {
	root, name, quota := "/sys/fs/cgroup", "cpu.max", fmt.Sprintf("%.0f %d", cores*period, period)
	if _, err := os.Stat(filepath.Join(root, "cpu")); err == nil {
		root, name, quota = filepath.Join(root, "cpu"), "cpu.cfs_quota_us", fmt.Sprintf("%.0f", cores*period)
	}
	dir, err := os.MkdirTemp(root, "keyway-slack-")
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(dir, name), []byte(quota), 0o600)
	err = cmp.Or(err, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.Pid())), 0o600))
	return func() { w.Kill(); os.Remove(dir) }, err
}
