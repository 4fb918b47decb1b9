// Command mutants takes the rules of Keyway away one at a time, in a scratch
// copy of the repository, and looks whether their tests notice. It is what
// `make mutants` runs. It fails if a rule that is not explained can be taken
// away unnoticed, if one that is said to be covered by others is noticed, or if
// a mutation no longer fits the code.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("mutants", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "`regexp` of the rules and files to try; all by default")
	jobs := f.Int("jobs", 2, "`number` of copies to work in at a time")
	if err := f.Parse(args); err != nil {
		return 2
	}
	pattern, err := regexp.Compile(*only)
	if err != nil || *jobs < 1 || f.NArg() > 0 {
		fmt.Fprintln(stderr, "mutants: want -only REGEXP and -jobs of at least 1, and nothing else")
		return 2
	}
	list := slices.DeleteFunc(mutations(), func(m mutation) bool { return !pattern.MatchString(m.rule) && !pattern.MatchString(m.file) })
	began := time.Now()
	counts, err := tryAll(ctx, list, *jobs, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	fmt.Fprintf(stdout, "\n%d mutations: %d killed, %d survived as explained, %d survived, %d do not fit, in %v\n", len(list),
		counts[killed], counts[explained], counts[survived], counts[broken], time.Since(began).Round(time.Second))
	if counts[survived]+counts[broken] > 0 {
		return 1
	}
	return 0
}

// tryAll tries the mutations in a number of scratch copies and prints a line
// for each.
func tryAll(ctx context.Context, list []mutation, jobs int, out io.Writer) (map[verdict]int, error) {
	var copies []*scratch
	defer func() {
		for _, s := range copies {
			os.RemoveAll(s.dir)
		}
	}()
	for range min(jobs, len(list)) {
		s, err := newScratch(ctx, ".")
		if err != nil {
			return nil, err
		}
		copies = append(copies, s)
	}
	sound := &baseline{results: map[string]*baselineResult{}}
	counts := map[verdict]int{}
	next := make(chan mutation)
	var mu sync.Mutex // guards counts and out
	var wg sync.WaitGroup
	for _, s := range copies {
		wg.Go(func() {
			for m := range next {
				r := s.try(ctx, m, sound)
				mu.Lock()
				counts[r.verdict]++
				n := counts[killed] + counts[explained] + counts[survived] + counts[broken]
				fmt.Fprintf(out, "%3d/%d %-9s %s (%s)\n            %s\n", n, len(list), r.verdict, m.rule, m.file, r.why)
				mu.Unlock()
			}
		})
	}
	for _, m := range list {
		if ctx.Err() != nil {
			break
		}
		next <- m
	}
	close(next)
	wg.Wait()
	return counts, context.Cause(ctx)
}
