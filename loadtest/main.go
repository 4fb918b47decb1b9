//go:build linux

// Command loadtest runs the same work over Keyway, over locks in Redis and over
// other ways to exclude, side by side on this machine, and shows what each
// costs and whether it was right.
//
//	go run . --short                     # less than 4 minutes
//	go run . --contenders plain,keyway --workloads hot --rate 5000
//
// From the directory above, these are "go -C loadtest run .". It starts what it needs on free ports and stops it
// again. docs/benchmarks.md has the method. It exits with 1 if a contender was wrong that should be
// right, or the other way round, and with 2 if it was called in a wrong way.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

func main() { os.Exit(cli.Main("loadtest", run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "app" {
		return runApp(ctx, args[1:], stdout, stderr)
	}
	o, err := parseOptions(args, stdout)
	if err != nil {
		return err
	}
	out, err := filepath.Abs(o.out)
	if err == nil {
		err = os.MkdirAll(out, 0o755) // rather now than after the run
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	r, err := measure(ctx, o, stdout, stderr)
	if err != nil {
		return err
	}
	r.Text(stdout, console.HasColor(stdout))
	if err := write(r, out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nreport: %s (and results.json)\n", filepath.Join(out, "report.html"))
	if !r.OK() {
		return errWrong
	}
	return nil
}

// errWrong: the records show what must not be, or not what must be.
var errWrong = errors.New("the correctness counters are not as they must be, see above")

// write writes the report's files to a directory.
func write(r *report.Report, dir string) error {
	for name, form := range map[string]func(io.Writer) error{"results.json": r.JSON, "report.html": r.HTML} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(form(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
