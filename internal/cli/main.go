package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/internal/metrics"
)

// Run is a command. It returns nil after a clean end, and it ends when ctx is
// done.
type Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Main runs a command and returns the exit code of its process: 0 after a clean end, 2 after a
// [UsageError] and 1 after any other error, which it prints on one line. The first SIGINT or
// SIGTERM ends the command's context, the second one the process. Writing to an output without a
// reader fails but does not end the process, so a server continues without its log.
func Main(name string, run Run) int {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	unhook := context.AfterFunc(ctx, stop)
	defer unhook()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if _, quiet := err.(Exit); err != nil && !quiet && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, console.Printable(OneLine(err)))
	}
	return ExitCode(err)
}

// OneLine returns the text of an error, which may be several that were joined.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Exit is the error of a command whose process ends with that code and says no more.
type Exit int

func (e Exit) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[Exit](err); ok {
		return int(exit)
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		return 2
	}
	return 1
}

// Ended returns the error of a command for one of its parts: nil if a signal has interrupted that, and
// a [UsageError] if the error wraps configuration.
func Ended(ctx context.Context, err, configuration error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, configuration):
		return Usagef("%v", err)
	}
	return err
}

// StateLine returns the line in which a command reports its state, such as "router ready", and its
// addresses. An empty address is left out. Several URLs of requests are separated by spaces.
func StateLine(state, requests, admin, gossip string) string {
	line := "keyway " + state + ": requests " + requests
	if admin != "" {
		line += ", admin http://" + admin
	}
	return line + ", gossip " + gossip + "\n"
}

// Version returns the line of --version: the module's version, with +dirty
// after changes, and the commit, where the build knows them, and Go's version.
func Version(name string) string {
	b, commit := metrics.ReadBuild(), ""
	if b.Revision != "" {
		commit = ", commit " + b.Revision
	}
	return fmt.Sprintf("keyway %s %s%s, %s %s/%s\n", name, b.Version, commit, b.GoVersion, runtime.GOOS, runtime.GOARCH)
}
