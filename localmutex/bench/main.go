// Bench compares localmutex with sync.Mutex and with other keyed mutexes:
//
//	go -C localmutex/bench run .
//
// It runs all of them in turn, several rounds of it, and prints for each the
// median time of one Lock and Unlock, and its ratio (×) to localmutex.Mutex.
// The ratios are worth more than the times. On a busy machine add -cpu.
//
// containerd keeps its kmutex in an internal package since version 2; here is
// the last public one, of version 1.7.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 7, "how often to run each contender; the median counts")
	span := flags.Duration("time", 100*time.Millisecond, "how long to run a contender at a time")
	goroutines := flags.Int("goroutines", 8, "how many contend for one key, or each have their own")
	cpu := flags.Bool("cpu", false, "count this process's CPU time, on all cores, instead of the time on the wall")
	only := flags.String("only", "", "a regular expression: run only the contenders whose names it matches, and localmutex.Mutex")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *rounds < 1 || *span <= 0 || *goroutines < 1 || flags.NArg() > 0 {
		return errors.New("-rounds, -time and -goroutines must be above 0, and nothing else is understood")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	chosen := slices.DeleteFunc(contenders(), func(c contender) bool {
		return !c.reference && !pattern.MatchString(c.name)
	})
	loads := workloads(*goroutines)
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	if *cpu {
		clock = cpuTime
	}
	results, err := measure(ctx, chosen, loads, *rounds, *span, clock)
	if err != nil {
		return err
	}
	return write(stdout, results, loads)
}

// A workload is a number of goroutines that lock and unlock keys.
type workload struct {
	name string
	keys []string // one for each goroutine
	ends bool     // they lock with contexts of their own, that can end
}

func workloads(n int) []workload {
	same, distinct := make([]string, n), make([]string, n)
	for i := range n {
		same[i], distinct[i] = "order-4711", fmt.Sprint("order-", 4711+i)
	}
	return []workload{
		{name: "1 key", keys: same[:1]},
		{name: fmt.Sprintf("%d goroutines, own keys", n), keys: distinct},
		{name: fmt.Sprintf("%d goroutines, 1 key", n), keys: same},
		{name: "the same, contexts that end", keys: same, ends: true},
	}
}

// run makes about n locks and unlocks in all.
func (w workload) run(p pair, n int) {
	var wg sync.WaitGroup
	for _, key := range w.keys {
		wg.Go(func() {
			ctx := context.Background()
			if w.ends {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
			}
			for range n/len(w.keys) + 1 {
				p.unlock(key, p.lock(ctx, key))
			}
		})
	}
	wg.Wait()
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var use syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// result is what one contender took: nanoseconds per Lock and Unlock for each
// workload, and allocations of the first.
type result struct {
	contender
	times  []time.Duration // in picoseconds, for the decimals
	allocs float64
}

func measure(ctx context.Context, all []contender, loads []workload, rounds int, span time.Duration, clock func() time.Duration) ([]result, error) {
	results := make([]result, len(all))
	samples := make([][][]time.Duration, len(all))
	for i, c := range all {
		p := c.make()
		key := loads[0].keys[0]
		results[i] = result{contender: c, times: make([]time.Duration, len(loads))}
		results[i].allocs = testing.AllocsPerRun(1000, func() { p.unlock(key, p.lock(ctx, key)) })
		samples[i] = make([][]time.Duration, len(loads))
	}
	for range rounds {
		for l, load := range loads {
			for i, c := range all {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				samples[i][l] = append(samples[i][l], sample(c, load, span, clock))
			}
		}
	}
	for i := range results {
		for l, times := range samples[i] {
			slices.Sort(times)
			results[i].times[l] = times[len(times)/2]
		}
	}
	return results, nil
}

// sample runs load on c for about span and returns picoseconds per lock and
// unlock.
func sample(c contender, load workload, span time.Duration, clock func() time.Duration) time.Duration {
	p := c.make()
	for n := 1000; ; {
		start := clock()
		load.run(p, n)
		took := clock() - start
		if took >= span/2 {
			return took * 1000 / time.Duration(n)
		}
		n = int(min(float64(n)*100, float64(n)*float64(span)/float64(took+1)))
	}
}

func write(out io.Writer, results []result, loads []workload) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tcontext\tFIFO\tcleans up\tallocs\t")
	for _, load := range loads {
		fmt.Fprintf(t, "%s\t×\t", load.name)
	}
	fmt.Fprintln(t)
	reference := slices.IndexFunc(results, func(r result) bool { return r.reference })
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.0f\t", r.name, yes(r.context), yes(r.fifo), yes(r.cleans), r.allocs)
		for l, took := range r.times {
			fmt.Fprintf(t, "%.1f ns\t%.2f\t", float64(took)/1000, float64(took)/float64(results[reference].times[l]))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
