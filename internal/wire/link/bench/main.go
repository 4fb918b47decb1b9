// Command bench compares the link with what else could carry requests from a
// router to a worker: requests per second and CPU time per request, both ends
// in one process, over loopback. The contestants run in turn, several rounds,
// and it prints medians.
//
//	go run . -rounds 5 -time 1s
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// A contestant answers with so many bytes, to so many requests at once.
const (
	size   = 100
	atOnce = 64
)

// contestant is one way to carry requests.
type contestant struct {
	name  string
	start starter
}

// starter returns a function that does one request and the one that ends everything.
type starter = func() (do func() error, stop func(), err error)

// result is what one round of one contestant yields.
type result struct {
	rate float64 // requests per second
	cpu  float64 // µs per request, user and system, both ends
	p50  float64 // µs
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	field := contestants()
	results := make([][]result, len(field))
	for range *rounds {
		for i, c := range field {
			r, err := measure(c, *span)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[i] = append(results[i], r)
		}
	}
	fmt.Fprintf(out, "%d requests at once, %d-byte answers, medians of %d interleaved rounds of %v\n", atOnce, size, *rounds, *span)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\trequests/s\tCPU/request\tp50\t")
	for i, c := range field {
		median := func(figure func(result) float64) float64 {
			var all []float64
			for _, r := range results[i] {
				all = append(all, figure(r))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(tw, "%s\t%.0f\t%.2f µs\t%.0f µs\t\n", c.name, median(func(r result) float64 { return r.rate }),
			median(func(r result) float64 { return r.cpu }), median(func(r result) float64 { return r.p50 }))
	}
	return tw.Flush()
}

// measure runs one contestant for a while.
func measure(c contestant, span time.Duration) (result, error) {
	do, stop, err := c.start()
	if err != nil {
		return result{}, err
	}
	defer stop()
	for range 200 { // warm up
		if err := do(); err != nil {
			return result{}, err
		}
	}
	latencies, failed := make([][]time.Duration, atOnce), make(chan error, atOnce)
	var wg sync.WaitGroup
	cpu, start := cpuTime(), time.Now()
	for i := range atOnce {
		wg.Go(func() {
			for t := time.Now(); t.Sub(start) < span; {
				if err := do(); err != nil {
					failed <- err
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
	select {
	case err := <-failed:
		return result{}, err
	default:
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	n := float64(len(all))
	return result{rate: n / elapsed.Seconds(), cpu: used.Seconds() * 1e6 / n, p50: all[len(all)/2].Seconds() * 1e6}, nil
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
