// Command dev runs one router and three workers with the demo app on this
// machine until it is interrupted. It is what `make run` starts. It expects
// the programs router and worker beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
)

const (
	workers = 3
	// stopTimeout is a little more than the workers' own grace period.
	stopTimeout = 30 * time.Second
)

func main() {
	free := flag.Bool("free", false, "take free ports even if 8080, 8081 and 7946 are free")
	flag.Parse()
	if err := run(*free, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

// demo is what runs.
type demo struct {
	programs cluster.Programs
	out      *os.File // the user's
	log      *os.File // of all programs
	router   *cluster.Process
	workers  []*cluster.Process
}

func run(free bool, stdout *os.File) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.CreateTemp("", "keyway-*.log")
	if err != nil {
		return err
	}
	defer log.Close()
	d := &demo{out: stdout, log: log, programs: cluster.In(filepath.Dir(self))}

	ctx, stop := untilSignal()
	defer stop()
	defer func() {
		err = errors.Join(err, d.stop())
		if err == nil {
			os.Remove(log.Name())
		}
	}()
	if err := d.start(ctx, free); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d.introduce()
	d.watch(ctx)
	return nil
}

// untilSignal returns a context that ends with the terminal, Ctrl-C or kill.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

func (d *demo) start(ctx context.Context, free bool) (err error) {
	addresses := []string{"--listen", "127.0.0.1:8080", "--admin", "127.0.0.1:8081", "--gossip", "127.0.0.1:7946"}
	for i := 1; i < len(addresses); i += 2 {
		if free || !isFree(addresses[i]) {
			addresses[i] = "127.0.0.1:0"
		}
	}
	if d.router, err = cluster.Start(ctx, "router", d.programs.Router, d.log, append(addresses, "--log", "console", "--new-cluster")...); err != nil {
		return err
	}
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		w, err := cluster.Start(ctx, name, d.programs.Worker, d.log, "--name", name, "--join", d.router.Gossip, "--admin", "127.0.0.1:0", "--log", "console", "--new-cluster")
		if err != nil {
			return err
		}
		d.workers = append(d.workers, w)
	}
	return nil
}

// introduce prints what runs and what to try.
func (d *demo) introduce() {
	fmt.Fprintf(d.out, "\nKeyway is running: a router, and %d workers with a demo app.\n\n", workers)
	table := tabwriter.NewWriter(d.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "    program\trequests\tadmin\tpid")
	for _, p := range append([]*cluster.Process{d.router}, d.workers...) {
		fmt.Fprintf(table, "    %s\thttp://%s\thttp://%s\t%d\n", p.Name, p.Listen, p.Admin, p.Pid())
	}
	table.Flush()
	fmt.Fprintf(d.out, `
Send requests to the router, with the key in the header X-Key:

    curl -H 'X-Key: order-42' http://%[1]s/
    curl -H 'X-Key: order-42' 'http://%[1]s/?hold=50ms'    # holds the key for 50 ms
    curl 'http://%[2]s/explain?key=order-42'               # who owns it
    curl http://%[2]s/ring

Stop a worker (kill %[3]d), kill it (kill -9 %[3]d) or start another one in a second terminal:

    %[4]s

The programs' log is %[5]s. Ctrl-C stops them all.

`, d.router.Listen, d.router.Admin, d.workers[0].Pid(), d.workerCommand(fmt.Sprintf("w%d", workers+1)), d.log.Name())
}

// workerCommand returns what starts a worker in another terminal.
func (d *demo) workerCommand(name string) string {
	return fmt.Sprintf("%s --name %s --join %s", d.programs.Worker, name, d.router.Gossip)
}

// watch says which program ends, until ctx ends or nothing runs any more.
func (d *demo) watch(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range append([]*cluster.Process{d.router}, d.workers...) {
		all.Go(func() {
			select {
			case <-p.Done():
				fmt.Fprintf(d.out, "%s  %s\n", time.Now().Format(time.TimeOnly), d.describeEnd(p))
			case <-ctx.Done():
			}
		})
	}
	all.Wait()
	if ctx.Err() == nil {
		fmt.Fprintln(d.out, "Nothing of it runs any more.")
	}
}

// describeEnd says how a program ended, what that means and what starts it again.
func (d *demo) describeEnd(p *cluster.Process) string {
	how, gone := "left", "the others have its keys"
	if err := p.Err(); err != nil {
		how, gone = fmt.Sprintf("ended: %v", err), "the others have its keys within 10 s"
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
			how = "was killed"
		}
	}
	if p == d.router {
		return fmt.Sprintf("%s (pid %d) %s; nothing takes requests or keeps who owns what. To start it again: %s --listen %s --admin %s --gossip %s",
			p.Name, p.Pid(), how, d.programs.Router, p.Listen, p.Admin, p.Gossip)
	}
	return fmt.Sprintf("%s (pid %d) %s; %s. To start it again: %s", p.Name, p.Pid(), how, gone, d.workerCommand(p.Name))
}

// stop stops what runs: the workers together, then the router, which holds
// the store. A second signal kills them.
func (d *demo) stop() error {
	var running []*cluster.Process
	for _, w := range d.workers {
		if w.Ended() == nil {
			running = append(running, w)
		}
	}
	if d.router == nil || len(running) == 0 && d.router.Ended() != nil {
		return nil
	}
	fmt.Fprintln(d.out, "stopping …")
	signalled, done := untilSignal()
	defer done()
	ctx, cancel := context.WithTimeout(signalled, stopTimeout)
	defer cancel()
	errs := make([]error, len(running)+1)
	var wg sync.WaitGroup
	for i, p := range running {
		wg.Go(func() { errs[i] = p.Stop(ctx) })
	}
	wg.Wait()
	if d.router.Ended() == nil {
		errs[len(running)] = d.router.Stop(ctx)
	}
	return errors.Join(errs...)
}

func isFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		l.Close()
	}
	return err == nil
}
