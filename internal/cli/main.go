package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run is a command. It returns nil after a clean end, and it ends when ctx is
// done.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs a command and returns the exit code of its process: 0 after a
// clean end, 2 after a [UsageError] and 1 after any other error, which it
// prints on one line. The first SIGINT or SIGTERM ends the command's context,
// the second one the process.
func Main(name string, run Run) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	unhook := context.AfterFunc(ctx, stop)
	defer unhook()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	return ExitCode(err)
}

// ExitCode returns the exit code for what a command returned.
func ExitCode(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return 2
	}
	return 1
}
