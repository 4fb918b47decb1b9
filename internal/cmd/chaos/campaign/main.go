// Command campaign tries Keyway's promises on hosts of their own: three Redis
// with Sentinels, two routers, four workers as sidecars and two hosts of
// clients, each a network namespace, on a network whose every fault is one-way
// and exact. From a seed processes are killed and paused, hosts cut off, their
// frames delayed, lost, reordered and held up, clocks set and slowed, Redis
// fails over with and without losing writes, disks and memory run out, and
// everything is upgraded, while requests go in all the time.
//
//	go run ./campaign -t 10m -seed 1
//
// It prints what was broken when and what clients saw, and exits with 1 if a
// promise was broken. Which failures a fault allows stands in one table, [kinds].
// It needs root on Linux, redis-server, redis-sentinel and a C compiler. All that
// it makes lives in namespaces of its own, and is gone with it however it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// insideEnv marks the process within the namespaces.
const insideEnv = "CAMPAIGN_INSIDE"

var (
	errUsage    = errors.New("usage")
	errViolated = errors.New("a promise was broken")
)

func main() { os.Exit(Main()) }

// Main is the program; its tests run it, too.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if os.Getenv(insideEnv) == "" {
		err = outside(ctx, os.Args[1:])
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	var exit childError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case errors.As(err, &exit) && exit.ExitCode() > 0: // it has said why
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "campaign:", err)
	return 1
}

// outside runs this program again in namespaces of processes and mounts: when
// it ends the kernel ends all of its processes and undoes its mounts.
func outside(ctx context.Context, args []string) error {
	if _, err := parse(args, io.Discard); err != nil { // also without root
		_, err = parse(args, os.Stderr)
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
		return childError{exit}
	}
	return nil
}

// childError is how the process within the namespaces has ended.
type childError struct{ *exec.ExitError }

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
	Time     time.Duration
	Seed     uint64
	TTL      time.Duration
	Hold     time.Duration
	Workers  int
	Routers  int
	Clients  int
	Only     []string // kinds of faults; empty for all
	Programs string   // directory of router and worker, built with clock.Overlay; empty builds them
	Verbose  bool
	Keep     bool
}

func parse(args []string, out io.Writer) (config, error) {
	cfg := config{}
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.DurationVar(&cfg.Time, "t", 10*time.Minute, "length of the campaign, 30s or more")
	flags.Uint64Var(&cfg.Seed, "seed", rand.Uint64N(1e6), "seed of the plan, the mix and what the network does to frames")
	flags.DurationVar(&cfg.TTL, "session-ttl", 0, "session TTL of the workers; 0: 10s, or 5s if -t is less than 3m")
	flags.DurationVar(&cfg.Hold, "hold", 15*time.Second, "how long routers hold a request")
	flags.IntVar(&cfg.Workers, "workers", 4, "number of workers, 3 to 9")
	flags.IntVar(&cfg.Routers, "routers", 2, "number of routers, 2 to 9")
	flags.IntVar(&cfg.Clients, "clients", 12, "number of clients on each of two hosts")
	only := flags.String("only", "", "`faults` instead of all, separated by commas: "+kindNames())
	flags.StringVar(&cfg.Programs, "programs", "", "`directory` of the programs router and worker, such as one that -keep has left; by default they are built")
	flags.BoolVar(&cfg.Verbose, "v", false, "let the programs log debug messages")
	flags.BoolVar(&cfg.Keep, "keep", false, "keep logs and data in any case")
	if err := flags.Parse(args); err != nil {
		return cfg, errors.Join(errUsage, err)
	}
	if *only != "" {
		cfg.Only = strings.Split(*only, ",")
	}
	for _, name := range cfg.Only {
		if kindOf(name) == nil {
			fmt.Fprintf(out, "campaign: -only: %q is none of %s\n", name, kindNames())
			return cfg, errUsage
		}
	}
	if flags.NArg() > 0 || cfg.Time < 30*time.Second || cfg.Workers < 3 || cfg.Workers > 9 || cfg.Routers < 2 || cfg.Routers > 9 || cfg.Clients < 1 {
		fmt.Fprintln(out, "campaign: no arguments; -t 30s or more; -workers 3 to 9; -routers 2 to 9; -clients 1 or more")
		return cfg, errUsage
	}
	if cfg.TTL == 0 {
		cfg.TTL = 10 * time.Second
		if cfg.Time < 3*time.Minute {
			cfg.TTL = 5 * time.Second
		}
	}
	return cfg, nil
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	if err := settle(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keyway-campaign-")
	if err != nil {
		return err
	}
	r, err := play(ctx, cfg, dir, stdout)
	if err == nil {
		r.print(stdout)
		err = r.verdict(stdout, cfg, dir)
	}
	if err != nil || cfg.Keep {
		fmt.Fprintf(stdout, "logs: %s\nagain: campaign %s\n", dir, again(args, cfg.Seed))
		return err
	}
	return os.RemoveAll(dir)
}

// again returns the arguments that repeat a run.
func again(args []string, seed uint64) string {
	if strings.Contains(strings.Join(args, " "), "-seed") {
		return strings.Join(args, " ")
	}
	return strings.Join(append(args, "-seed", fmt.Sprint(seed)), " ")
}
