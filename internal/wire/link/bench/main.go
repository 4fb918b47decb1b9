// Command bench compares the link with what else could carry requests from a
// router to a worker: requests per second and CPU time per request, both ends
// in one process, over loopback. The contestants run in turn, several rounds,
// and it prints medians.
//
//	go run . -rounds 5 -time 1s -concurrency 64
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
)

// contestant is one way to carry requests. start returns a function that does
// one request and the one that ends everything.
type contestant struct {
	name  string
	start func(size int) (do func(context.Context) error, stop func(), err error)
}

// result is what one round of one contestant yields.
type result struct {
	rate float64       // requests per second
	cpu  time.Duration // per request, user and system, both ends
	p50  time.Duration
	p99  time.Duration
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "rounds; each runs every contestant once")
	span := flags.Duration("time", time.Second, "time of one contestant in one round")
	workers := flags.Int("concurrency", 64, "requests at once")
	size := flags.Int("size", 100, "bytes of the answer's body")
	only := flags.String("only", "", "run only the contestant of this name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	field := contestants()
	results := map[string][]result{}
	for range *rounds {
		for _, c := range field {
			if *only != "" && c.name != *only {
				continue
			}
			r, err := measure(c, *size, *workers, *span)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], r)
		}
	}
	fmt.Fprintf(out, "%d requests at once, %d-byte answers, medians of %d interleaved rounds of %v\n", *workers, *size, *rounds, *span)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\trequests/s\tCPU/request\tp50\tp99\tMB/s\t")
	for _, c := range field {
		if rs := results[c.name]; len(rs) > 0 {
			rate := median(rs, func(r result) float64 { return r.rate })
			fmt.Fprintf(tw, "%s\t%.0f\t%.2f µs\t%.0f µs\t%.0f µs\t%.1f\t\n", c.name, rate,
				median(rs, func(r result) float64 { return float64(r.cpu) / 1e3 }),
				median(rs, func(r result) float64 { return float64(r.p50) / 1e3 }),
				median(rs, func(r result) float64 { return float64(r.p99) / 1e3 }),
				rate*float64(*size)/1e6)
		}
	}
	return tw.Flush()
}

// median returns the median of one figure of rs.
func median(rs []result, figure func(result) float64) float64 {
	var all []float64
	for _, r := range rs {
		all = append(all, figure(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// measure runs one contestant for a while.
func measure(c contestant, size, workers int, span time.Duration) (result, error) {
	do, stop, err := c.start(size)
	if err != nil {
		return result{}, err
	}
	defer stop()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	for range 200 { // warm up
		if err := do(ctx); err != nil {
			return result{}, err
		}
	}
	latencies := make([][]time.Duration, workers)
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for i := range workers {
		wg.Go(func() {
			for t := time.Now(); t.Sub(start) < span; {
				if err := do(ctx); err != nil {
					failed.Store(&err)
					return
				}
				now := time.Now()
				latencies[i] = append(latencies[i], now.Sub(t))
				t = now
			}
		})
	}
	wg.Wait()
	elapsed, used := time.Since(start), cpuTime()-cpu
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return result{
		rate: float64(len(all)) / elapsed.Seconds(),
		cpu:  used / time.Duration(len(all)),
		p50:  all[len(all)/2],
		p99:  all[len(all)*99/100],
	}, nil
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
