// Command campaign tries Keyway's promises on hosts of a network, each a network
// namespace: three of the store, two of routers, four of workers as sidecars and
// two of clients. The store is Redis with Sentinels, or etcd (-store etcd). Every
// fault of the network is one-way and exact.
//
// While requests go in all the time, a plan made from a seed is carried out. It kills
// and pauses processes, cuts hosts off, delays and loses their frames, and
// sets and slows clocks. The store fails over with and without losing writes, disks and
// memory run out, and everything is upgraded.
//
//	go run ./campaign -t 10m -seed 1
//
// It prints what was broken when and what clients saw, and exits with 1 if a
// promise was broken. Which failures a fault allows stands in one table, [cast.kinds].
// It needs root on Linux, iproute2, redis-server and redis-sentinel, or etcd, and a C compiler.
// All that it makes lives in namespaces of its own, and is gone with it however it ends.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cmd/chaos/fabric"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// insideEnv marks the process within the namespaces.
const insideEnv = "CAMPAIGN_INSIDE"

func main() { os.Exit(Main()) }

// Main is the program; its tests run it, too.
func Main() int {
	if os.Getenv(insideEnv) == "" {
		return cli.Main("campaign", func(ctx context.Context, args []string, stdout, _ io.Writer) error { return outside(ctx, args, stdout) })
	}
	return cli.Main("campaign", run)
}

// outside runs this program again in namespaces of processes and mounts: when
// it ends the kernel ends all of its processes and undoes its mounts.
func outside(ctx context.Context, args []string, stdout io.Writer) error {
	if _, err := parse(args, stdout); err != nil { // also without root
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("it makes network namespaces and needs root")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the child dies with this thread
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if exit := (*exec.ExitError)(nil); errors.As(cmd.Wait(), &exit) {
		return cli.Exit(max(exit.ExitCode(), 1)) // it has said why
	}
	return nil
}

// settle makes the mount namespace the process's own.
func settle() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

// config is what the flags say.
type config struct {
	Time    time.Duration
	Seed    int64
	TTL     time.Duration
	Clients int
	Store   string   // overRedis or overEtcd
	Only    []string // kinds of faults; empty for all
	Verbose bool
}

// hold is how long routers hold a request.
const hold = 15 * time.Second

const about = "Campaign tries the promises on hosts of a network, as root on Linux: every fault comes while requests go in.\n"

func parse(args []string, out io.Writer) (config, error) {
	cfg := config{}
	f := cli.NewFlags("campaign", about)
	f.Duration(&cfg.Time, "t", 10*time.Minute, 30*time.Second, "`length` of the campaign")
	f.Int64(&cfg.Seed, "seed", rand.Int64N(1e6), 0, "seed of the plan, the mix and what the network does to frames")
	f.Duration(&cfg.TTL, "session-ttl", 0, 0, "session TTL of the workers; 0: 10s, or 5s if -t is less than 3m")
	f.Int(&cfg.Clients, "clients", 12, 1, "`number` of clients on each of two hosts")
	f.Choice(&cfg.Store, "store", "three redis with Sentinels, or three etcd", overRedis, overEtcd)
	f.List(&cfg.Only, "only", ",", nil, "`faults` instead of all, separated by commas: "+kindNames())
	f.Bool(&cfg.Verbose, "v", "let the programs log debug messages")
	if err := f.Parse(args, out); err != nil {
		return cfg, err
	}
	if n := len((&cast{cfg: cfg}).deck()); n < len(cfg.Only) || n == 0 {
		return cfg, cli.Usagef("-only %s: with -store %s not all of these are among %s", strings.Join(cfg.Only, ","), cfg.Store, kindNames())
	}
	cfg.TTL = cmp.Or(cfg.TTL, trial.SessionTTL(cfg.Time))
	return cfg, nil
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	cfg, err := parse(args, stdout)
	if err != nil {
		return err
	}
	if err := settle(); err != nil {
		return err
	}
	return trial.InDir(stdout, "campaign", args, cfg.Seed, func(dir string) error {
		c := &cast{cfg: cfg, Site: trial.NewSite(dir, cfg.TTL), network: fabric.NewSwitch(uint64(cfg.Seed))}
		defer c.close()
		if err := c.build(ctx); err != nil {
			return err
		}
		if err := c.addMembers(ctx); err != nil {
			return err
		}
		routers := c.names("p")
		t := &trial.Trial{
			Plan: c.plan(), Site: c.Site, Mix: trial.NewMix(rand.New(rand.NewPCG(uint64(cfg.Seed), 0)), cfg.TTL),
			Dial: []trial.Dialer{c.dial("c1", routers...), c.dial("c2", routers...)}, Count: cfg.Clients, Out: stdout,
		}
		t.Mix.Posts, t.Mix.LeftShare = 1, 0 // net/http repeats a GET by itself when a connection breaks
		r, err := t.Play(ctx)
		if err != nil {
			return err
		}
		r.Print(func(w io.Writer) {
			n := c.network.Counts()
			fmt.Fprintf(w, "frames\t%d forwarded, %d lost, %d delayed\n", n.Forwarded, n.Lost, n.Delayed)
		})
		return r.Verdict(dir)
	})
}

// plan says which faults come when.
func (c *cast) plan() trial.Plan {
	return trial.Plan{
		Time: c.cfg.Time, Seed: c.cfg.Seed, TTL: c.cfg.TTL, Quiet: 3 * time.Second, Together: 2, Hosts: hostNames, Kinds: c.deck(),
	}
}
