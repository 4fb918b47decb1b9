// Command dev runs one router and three workers with the demo app on this
// machine until it is interrupted. It is what `make run` starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

const (
	workers = 3
	// stopTimeout is a little more than the workers' own grace period.
	stopTimeout = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "keyway-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(stdout, "building …")
	programs, err := cluster.Build(ctx, dir)
	if err != nil {
		return quiet(ctx, err)
	}

	out := cluster.LockedWriter(stdout)
	var running []*cluster.Process
	defer func() { err = errors.Join(err, stopAll(running, out)) }()
	router, err := cluster.Start(ctx, "router", programs.Router, out, "--new-cluster",
		"--listen", preferred("127.0.0.1:8080"), "--admin", preferred("127.0.0.1:8081"), "--gossip", preferred("127.0.0.1:7946"))
	if err != nil {
		return quiet(ctx, err)
	}
	running = append(running, router)
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		w, err := cluster.Start(ctx, name, programs.Worker, out, "--new-cluster", "--name", name, "--join", router.Gossip, "--admin", "127.0.0.1:0")
		if err != nil {
			return quiet(ctx, err)
		}
		running = append(running, w)
	}
	fmt.Fprintf(out, `
Keyway is running: one router and %d workers. Send requests to http://%s with the header X-Key:

    curl -H 'X-Key: order-42' http://%s/
    curl -H 'X-Key: order-42' 'http://%s/?hold=50ms'    # holds the key for 50 ms
    curl 'http://%s/lookup?key=order-42'                # who owns it
    curl http://%s/ring

Ctrl-C stops them all.

`, workers, router.Listen, router.Listen, router.Listen, router.Admin, router.Admin)

	ended := make(chan *cluster.Process, len(running))
	for _, p := range running {
		go func() { <-p.Done(); ended <- p }()
	}
	select {
	case <-ctx.Done():
		return nil
	case p := <-ended:
		return fmt.Errorf("%s has ended by itself; its last lines stand above", p.Name)
	}
}

// quiet turns an error that comes of being interrupted into none.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// preferred returns addr if it is free, else a free port of the same host.
func preferred(addr string) string {
	if l, err := net.Listen("tcp", addr); err == nil {
		l.Close()
		return addr
	}
	host, _, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, "0")
}

// stopAll stops the workers together, then the router, which holds the store.
func stopAll(running []*cluster.Process, out io.Writer) error {
	if len(running) == 0 {
		return nil
	}
	fmt.Fprintln(out, "stopping …")
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	errs := make([]error, len(running))
	var wg sync.WaitGroup
	for i, p := range running[1:] {
		wg.Go(func() { errs[i+1] = p.Stop(ctx) })
	}
	wg.Wait()
	errs[0] = running[0].Stop(ctx)
	return errors.Join(errs...)
}
