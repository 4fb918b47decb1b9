// Command bench runs Keyway's Redis lock beside other locks for Go, in turn
// and on one Redis, and prints what each does per second, the ratio of ours to
// the best of the others, the CPU time of a lock on both ends, and the
// commands that each sends per acquisition.
//
//	go run . [-rounds 5] [-for 500ms] [-addr host:port]
//
// Without -addr it starts a redis-server of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scenario is a number of callers, each of a key of its own or all of one.
type scenario struct {
	name    string
	callers int
	shared  bool
}

var scenarios = []scenario{
	{"uncontended, 1 caller", 1, false},
	{"uncontended, 8 callers", 8, false},
	{"uncontended, 64 callers", 64, false},
	{"contended, 64 callers of one key", 64, true},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "rounds; in each every contestant has its turn")
	turn := flags.Duration("for", 500*time.Millisecond, "length of a turn")
	addr := flags.String("addr", "", "host:port of a Redis to use")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *addr == "" {
		started, stop, err := startRedis(ctx)
		if err != nil {
			return err
		}
		defer stop()
		*addr = started
	}
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer out.Flush()
	fmt.Fprintf(out, "\tlock\tlocks/s\tours is\tCPU here\tin Redis\tcommands/lock\t\n")
	for _, s := range scenarios {
		if err := compare(ctx, out, s, *addr, *rounds, *turn); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// compare runs a scenario and prints the medians. The ratio is the median of
// the rounds' ratios, since what disturbs a round disturbs all its turns.
func compare(ctx context.Context, out io.Writer, s scenario, addr string, rounds int, turn time.Duration) error {
	rates := make([][]float64, len(contestants))
	stalls := make([]int, len(contestants))
	here, there := make([][]float64, len(contestants)), make([][]float64, len(contestants))
	open := make([]contestant, len(contestants))
	for i, c := range contestants {
		var err error
		if open[i], err = c.open(addr); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer open[i].close()
	}
	for round := range rounds {
		for turnOf := range contestants {
			i := (round + turnOf) % len(contestants) // nobody is always first
			t, err := play(ctx, open[i], s, addr, turn)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && t.locks > 0 {
				stalls[i]++
				err = nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", contestants[i].name, err)
			}
			rates[i] = append(rates[i], float64(t.locks)/t.took.Seconds())
			here[i] = append(here[i], t.here.Seconds()*1e6/float64(t.locks))
			there[i] = append(there[i], t.there.Seconds()*1e6/float64(t.locks))
		}
	}
	for i, c := range contestants {
		commands, err := commandsPerLock(ctx, i, s, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		ratios := make([]float64, rounds)
		for r := range ratios {
			ratios[r] = rates[0][r] / rates[i][r]
		}
		name := c.name
		if stalls[i] > 0 {
			name = fmt.Sprintf("%s (stuck in %d of %d turns)", name, stalls[i], rounds)
		}
		fmt.Fprintf(out, "%s\t%s\t%.0f\t%.2f x\t%.1f µs\t%.1f µs\t%.2f\t\n",
			s.name, name, median(rates[i]), median(ratios), median(here[i]), median(there[i]), commands)
	}
	best := make([]float64, rounds)
	for r := range best {
		for i := range contestants[1:] {
			best[r] = max(best[r], rates[i+1][r])
		}
		best[r] = rates[0][r] / best[r]
	}
	fmt.Fprintf(out, "%s\tbest peer\t\t%.2f x\t\t\t\t\n", s.name, median(best))
	return nil
}

// turnResult is what a contestant did in a turn.
type turnResult struct {
	locks       int
	took        time.Duration
	here, there time.Duration // CPU time
}

// play lets the callers of a scenario lock and unlock for a while.
func play(ctx context.Context, c contestant, s scenario, addr string, turn time.Duration) (t turnResult, err error) {
	// Connections and scripts first.
	if _, _, err := loop(ctx, c, s, 20*time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return t, err
	}
	here, there, err := cpu(ctx, addr)
	if err != nil {
		return t, err
	}
	var stalled error
	t.locks, t.took, stalled = loop(ctx, c, s, turn)
	t.here, t.there, err = cpu(ctx, addr)
	t.here -= here
	t.there -= there
	return t, cmp.Or(stalled, err)
}

// cpu is the CPU time of this process and of Redis so far.
func cpu(ctx context.Context, addr string) (here, there time.Duration, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, 0, err
	}
	here = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	client := openClient(addr)
	defer client.Close()
	info, err := client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		_, after, _ := strings.Cut(info, field)
		text, _, _ := strings.Cut(after, "\r")
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, 0, err
		}
		there += time.Duration(seconds * 1e9)
	}
	return here, there, nil
}

// loop ends its callers two seconds after the turn, for a lock that got stuck.
func loop(ctx context.Context, c contestant, s scenario, turn time.Duration) (locks int, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, turn+2*time.Second)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for i := range s.callers {
		key := "key"
		if !s.shared {
			key += strconv.Itoa(i)
		}
		running.Go(func() {
			n := 0
			var failed error
			for failed == nil && time.Since(began) < turn {
				var unlock func() error
				if unlock, failed = c.lock(ctx, key); failed == nil {
					n++
					failed = unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			locks += n
			err = cmp.Or(err, failed)
		})
	}
	running.Wait()
	return locks, time.Since(began), err
}

func commandsPerLock(ctx context.Context, i int, s scenario, addr string) (float64, error) {
	proxy, err := startCounter(addr)
	if err != nil {
		return 0, err
	}
	defer proxy.close()
	c, err := contestants[i].open(proxy.listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.close()
	if _, _, err := loop(ctx, c, s, 20*time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return 0, err
	}
	before := proxy.commands.Load()
	locks, _, err := loop(ctx, c, s, 200*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return float64(proxy.commands.Load()-before) / float64(locks), err
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

// startRedis starts a redis-server that keeps nothing.
func startRedis(ctx context.Context) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	cmd := exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	for range 100 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return addr, stop, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("redis-server does not listen on %s", addr)
}
