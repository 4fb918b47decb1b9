package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// undoTimeout bounds each command that takes something away again.
const undoTimeout = time.Minute

// command returns a command that is interrupted, not killed, when ctx ends: an
// interrupted docker-compose says so to its containers.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a command. Its error holds what the command printed last.
func run(cmd *exec.Cmd) (stdout string, err error) {
	var out, all bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, &all), &all
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(all.String(), 30))
	}
	return strings.TrimSpace(out.String()), nil
}

func docker(ctx context.Context, args ...string) (stdout string, err error) {
	return run(command(ctx, "docker", args...))
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// undoing collects what has to be taken away at the end.
type undoing struct{ steps []func(context.Context) error }

func (u *undoing) add(step func(context.Context) error) { u.steps = append(u.steps, step) }

// docker adds a docker command.
func (u *undoing) docker(args ...string) {
	u.add(func(ctx context.Context) error {
		_, err := docker(ctx, args...)
		return err
	})
}

// run takes everything away, the latest first, whatever became of ctx, and
// prints what could not be.
func (u *undoing) run(ctx context.Context, out io.Writer) {
	for len(u.steps) > 0 {
		step := u.steps[len(u.steps)-1]
		u.steps = u.steps[:len(u.steps)-1]
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		if err := step(ctx); err != nil {
			fmt.Fprintln(out, "cannot take away:", err)
		}
		cancel()
	}
}

// await asks until the answer is nil, and returns the last one when the time is
// over.
func await(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-ticks.C:
		}
	}
}
