// Package sidecars runs an app that is no Go program as Keyway is meant to run
// it: two of the app, each behind a worker, and a router in front of them.
package sidecars

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

// Config says what runs.
type Config struct {
	App    []string // the command of the app. It listens on a free port and prints "listening on http://host:port"
	Env    []string // of the app, beside this process's own: name=value
	Key    string   // where in a request the router finds the key
	Worker []string // more flags of the workers
	Log    io.Writer
}

const apps = 2

// How long a program may take.
const (
	startPatience = 30 * time.Second
	stopPatience  = 20 * time.Second
)

// Run starts everything, calls f with the router's URL, and stops everything.
func Run(ctx context.Context, c Config, f func(ctx context.Context, url string) error) (err error) {
	dir, err := os.MkdirTemp("", "keyway-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := cluster.Build(ctx, dir)
	if err != nil {
		return err
	}
	log := cluster.LockedWriter(c.Log)
	router, err := cluster.Start(ctx, "router", programs.Router, log, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--gossip", "127.0.0.1:0", "--new-cluster", "--log-level", "error", "--key", c.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(router)) }()
	for i := range apps {
		app, err := startApp(ctx, c, log)
		if err != nil {
			return err
		}
		defer app.stop()
		name := fmt.Sprintf("w%d", i+1)
		args := []string{"--name", name, "--join", router.Gossip, "--new-cluster", "--log-level", "error", "--upstream", app.url}
		worker, err := cluster.Start(ctx, name, programs.Worker, log, append(args, c.Worker...)...)
		if err != nil {
			return err
		}
		defer stop(worker)
	}
	return f(ctx, "http://"+router.Listen)
}

func stop(p *cluster.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	return p.Stop(ctx)
}

type app struct {
	cmd *exec.Cmd
	url string
}

// startApp starts the app and waits for its line.
func startApp(ctx context.Context, c Config, log io.Writer) (*app, error) {
	a := &app{cmd: exec.Command(c.App[0], c.App[1:]...)}
	a.cmd.Env = append(os.Environ(), c.Env...)
	a.cmd.Stderr = log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not end it first
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startPatience, func() { _ = a.cmd.Process.Kill() })
	defer late.Stop()
	defer context.AfterFunc(ctx, func() { _ = a.cmd.Process.Kill() })()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			a.url = url
			return a, nil
		}
	}
	return nil, fmt.Errorf("%s did not say where it listens: %w", filepath.Base(c.App[0]), a.cmd.Wait())
}

func (a *app) stop() {
	_ = a.cmd.Process.Kill() // it holds nothing: its worker has handed its keys over
	_ = a.cmd.Wait()
}
