// Command mutants takes the rules of Keyway away one at a time, in a scratch
// copy of the repository, and looks whether their tests notice. It fails if a
// rule can be taken away unnoticed, if one that is said to be covered by others
// is noticed, or if a mutation no longer fits the code.
//
// A package lists the mutations of its files in testdata/mutants.txt. Empty
// lines separate the entries; a line that begins with # is a comment:
//
//	rule: an unlock frees only the execution whose token it names
//	file: table.go
//	test: TestStaleUnlock
//	-	if !e.claimed() || e.token != token {
//	+	if !e.claimed() {
//
// The lines below the fields are those of a diff: whole lines that are taken
// out (-), put in (+) or stay (a space), each with its sign even if it is empty.
// What is taken out or stays stands in the file exactly once.
//
// The field test names tests of the package, or one with subtests, as in
// TestConformance/TrapStaleClear. Before them may stand the directory of another
// package, from the repository's root, and behind them flags of go test, such as
// -timeout=20s. The field covered says why no test fails without the rule, and
// why it stays: such a mutation has to survive.
//
// An entry of the fields trap and test alone takes nothing away. It names a mistake
// that others made, and the tests of it; -traps writes them into tables of a page:
//
//	go run ./internal/cmd/mutants -traps docs/protocol-checks.md
package main

import (
	"cmp"
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
	fit := f.Bool("fit", false, "only look whether all fit the code")
	traps := f.String("traps", "", "`page` whose tables of traps are to be made anew, and nothing else")
	if f.Parse(args) != nil {
		return 2
	}
	pattern, err := regexp.Compile(*only)
	if err != nil || *jobs < 1 || f.NArg() > 0 {
		fmt.Fprintln(stderr, "mutants: want -only REGEXP and -jobs of at least 1, and nothing else but -fit or -traps PAGE")
		return 2
	}
	names, err := tracked(ctx, ".")
	list, misread := read(".", names)
	err = errors.Join(err, misread)
	list = slices.DeleteFunc(list, func(m mutation) bool { return !pattern.MatchString(m.rule) && !pattern.MatchString(m.file) })
	for _, m := range list {
		if misfit := m.fits("."); misfit != nil {
			err = errors.Join(err, fmt.Errorf("%s (%s): %w", cmp.Or(m.rule, m.trap), m.file, misfit))
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "mutants: not all mutations fit:\n%v\n", err)
		return 1
	}
	if *traps != "" {
		if err := writeTraps(*traps, list); err != nil {
			fmt.Fprintln(stderr, "mutants:", err)
			return 1
		}
		return 0
	}
	list = slices.DeleteFunc(list, func(m mutation) bool { return m.rule == "" })
	if *fit {
		fmt.Fprintf(stdout, "%d mutations fit\n", len(list))
		return 0
	}
	began := time.Now()
	counts, err := tryAll(ctx, names, list, *jobs, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	fmt.Fprintf(stdout, "\n%d mutations: %d killed, %d survived as explained, %d survived, %d do not fit, in %v\n", len(list),
		counts[killed], counts[explained], counts[survived], counts[broken], time.Since(began).Round(time.Second))
	return min(counts[survived]+counts[broken], 1)
}

// tryAll tries the mutations in a number of scratch copies and prints a line
// for each.
func tryAll(ctx context.Context, names []string, list []mutation, jobs int, out io.Writer) (map[verdict]int, error) {
	var copies []*scratch
	defer func() {
		for _, s := range copies {
			os.RemoveAll(s.dir)
		}
	}()
	for range min(jobs, len(list)) {
		s, err := newScratch(".", names)
		if copies = append(copies, s); err != nil {
			return nil, err
		}
	}
	sound := &baseline{results: map[string]func() error{}}
	counts := map[verdict]int{}
	next := make(chan mutation, len(list))
	for _, m := range list {
		next <- m
	}
	close(next)
	done := 0
	var mu sync.Mutex // guards counts, done and out
	var wg sync.WaitGroup
	for _, s := range copies {
		wg.Go(func() {
			for m := range next {
				v, why := s.try(ctx, m, sound)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				counts[v]++
				done++
				fmt.Fprintf(out, "%3d/%d %-9s %s (%s)\n            %s\n", done, len(list), v, m.rule, m.file, why)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return counts, context.Cause(ctx)
}
