package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/localmutex/locking"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// language has a client of the lock service. A driver runs the client: clients/conformance says what a driver
// reads and prints.
type language struct {
	name   string
	needs  string // a program
	debian string // its package
	driver []string
}

// languages have drivers in the directory clients, where these commands run.
var languages = []language{
	{"python", "python3", "python3", []string{"python3", "python/driver.py"}},
	{"javascript", "node", "nodejs", []string{"node", "javascript/driver.mjs"}},
	{"java", "javac", "openjdk-17-jdk-headless", []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "io.keyway.Driver"}},
}

// isLanguage reports whether the life of callers is that of a client in one of the languages.
func isLanguage(life string) bool {
	return slices.ContainsFunc(languages, func(l language) bool { return l.name == life })
}

// languagesOf returns the languages of these names. Each must be installed.
func languagesOf(names []string) (chosen []language, err error) {
	all := make([]string, len(languages))
	for i, l := range languages {
		all[i] = l.name
	}
	for i, name := range names {
		n := slices.Index(all, name)
		switch {
		case n < 0:
			return nil, cli.Usagef("-languages: %q is none of %s", name, strings.Join(all, ", "))
		case slices.Contains(names[:i], name):
			return nil, cli.Usagef("-languages: %s is there twice", name)
		}
		chosen = append(chosen, languages[n])
	}
	for _, l := range chosen {
		if _, err := exec.LookPath(l.needs); err != nil {
			return nil, fmt.Errorf("-languages: %s needs %s: %w. As root: scripts/deps %s (Debian's package)", l.name, l.needs, err, l.debian)
		}
	}
	return chosen, nil
}

// lockRouters serve locks to the clients in other languages, and are killed one at a time.
var lockRouters = []string{"locks-a", "locks-b"}

// addLanguages adds these routers, and compiles the clients that need it: under load that takes too long.
func (s *stage) addLanguages(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/keyway-go/keyway").Output()
	if err != nil {
		return fmt.Errorf("looking for Keyway's module: %w", err)
	}
	s.clients = filepath.Join(strings.TrimSpace(string(out)), "clients")
	for _, in := range s.cfg.Languages {
		if in.needs != "javac" {
			continue
		}
		javac := exec.CommandContext(ctx, "javac", "-d", s.classes(), "java/Keyway.java", "java/Driver.java")
		javac.Dir = s.clients
		if out, err := javac.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", javac.Args, err, out)
		}
	}
	for _, name := range lockRouters {
		addr, err := proc.FreeAddr()
		if err != nil {
			return err
		}
		s.AddRouter(name, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--join", s.gossip, "--locks", addr)
		s.lockURLs = append(s.lockURLs, "http://"+addr)
	}
	return nil
}

func (s *stage) classes() string { return filepath.Join(s.Stage.Dir, "classes") }

// killRouters kills these routers until ctx ends, in turns.
func (l *lockStage) killRouters(ctx context.Context, rng *rand.Rand) error {
	for i := 0; trial.Sleep(ctx, l.stage.TTL/2+trial.UpTo(rng, l.stage.TTL)); i++ {
		p := l.stage.Member(lockRouters[i%len(lockRouters)])
		if _, err := p.Kill(); err != nil {
			return err
		}
		l.kills.Add(1)
		trial.Sleep(ctx, trial.UpTo(rng, lockDelay))
		if err := p.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// drive has callers of the client in a language lock keys until ctx ends.
func (l *lockStage) drive(ctx context.Context, in language, callers int) error {
	settings, err := json.Marshal(map[string]any{"urls": l.stage.lockURLs, "token": nil, "label": in.name, "timeout": (3*l.stage.TTL + 5*time.Second).Seconds()})
	if err != nil {
		return err
	}
	var d *driver
	p := &trial.Program{Name: in.name, Stage: l.stage.Stage, Spec: func(string, int) (proc.Spec, error) {
		return proc.Spec{
			Program: in.driver[0], Args: slices.Concat(in.driver[1:], []string{string(settings)}),
			Env: []string{"PYTHONDONTWRITEBYTECODE=1", "CLASSPATH=" + l.stage.classes()},
			Run: func(cmd *exec.Cmd) error {
				cmd.Dir, cmd.Stdout = l.stage.clients, nil // what it prints is no log
				stdin, err := cmd.StdinPipe()
				if err != nil {
					return err
				}
				stdout, err := cmd.StdoutPipe()
				if err != nil {
					return err
				}
				if err := cmd.Start(); err != nil {
					return err
				}
				d = newDriver(stdin, stdout)
				return nil
			},
		}, nil
	}}
	if err := p.Start(ctx); err != nil {
		return err
	}
	defer func() {
		_, _ = p.Kill() // it runs, unless it has died, which the trial notes
		<-d.gone
	}()
	// A language is slow while it loads its code, so the first locks are not judged, and may fail.
	var warm sync.WaitGroup
	for i := range callers {
		warm.Go(func() {
			lock, err := d.lock(ctx, lockWish{keys: []string{fmt.Sprint("first-of-", in.name, i)}, lease: l.stage.TTL})
			if err == nil {
				_ = lock.Unlock(ctx) // else it ends with its lease
			}
		})
	}
	warm.Wait()
	var all sync.WaitGroup
	l.start(ctx, &all, in.name, callers, false, func(int) taker { return d.lock })
	all.Wait()
	return nil
}

// driver is a process that runs a client in another language.
type driver struct {
	writes sync.Mutex
	in     *json.Encoder
	gone   chan struct{} // closed when the process says no more

	mu      sync.Mutex // guards what follows
	last    int        // id of a request
	waiting map[int]*asked
}

// asked is a request, and the lock that it may have made.
type asked struct {
	id     int
	answer chan driverLine
	lost   atomic.Bool
}

// driverLine is what a driver says.
type driverLine struct {
	ID, Lost    int
	Tokens      map[string]int64
	Left        float64
	Error, Text string
}

// newDriver returns the driver that reads and prints there.
func newDriver(in io.Writer, out io.Reader) *driver {
	d := &driver{in: json.NewEncoder(in), gone: make(chan struct{}), waiting: make(map[int]*asked)}
	go func() {
		defer close(d.gone)
		d.read(out)
	}()
	return d
}

func (d *driver) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var l driverLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			return // its callers fail
		}
		d.mu.Lock()
		a, of := d.waiting[l.ID], d.waiting[l.Lost]
		d.mu.Unlock()
		switch {
		case of != nil:
			of.lost.Store(true)
		case a != nil:
			a.answer <- l
		}
	}
}

// ask makes a request and returns its answer. The caller forgets the request once it needs no lock of it.
func (d *driver) ask(ctx context.Context, do string, with map[string]any) (a *asked, l driverLine, err error) {
	d.mu.Lock()
	d.last++
	a = &asked{id: d.last, answer: make(chan driverLine, 1)}
	d.waiting[a.id] = a
	d.mu.Unlock()
	with["id"], with["do"] = a.id, do
	d.writes.Lock()
	err = d.in.Encode(with)
	d.writes.Unlock()
	if err != nil {
		return a, l, err
	}
	select {
	case l = <-a.answer:
		return a, l, nil
	case <-d.gone:
		return a, l, errors.New("the driver has ended, or prints no JSON")
	case <-ctx.Done():
		return a, l, ctx.Err()
	}
}

func (d *driver) forget(a *asked) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, a.id)
}

// lock is a [taker].
func (d *driver) lock(ctx context.Context, w lockWish) (keeping, error) {
	with := map[string]any{"keys": w.keys, "ttl": w.lease.Seconds(), "wait": nil, "read": w.read}
	if w.leaves > 0 {
		with["wait"] = w.leaves.Seconds()
	}
	a, l, err := d.ask(ctx, "lock", with)
	switch {
	case err != nil:
	case l.Error == "Locked":
		err = errNotTaken
	case l.Error != "":
		err = fmt.Errorf("%s: %s", l.Error, l.Text)
	}
	if err != nil {
		d.forget(a)
		return nil, err
	}
	lock := &driverLock{driver: d, asked: a, tokens: l.Tokens}
	lock.Keep(ctx)
	return lock, nil
}

// driverLock is a lock of a client in another language.
type driverLock struct {
	driver *driver
	asked  *asked
	tokens map[string]int64
	until  time.Time
}

// of does something with the lock.
func (l *driverLock) of(ctx context.Context, do string) (driverLine, error) {
	a, line, err := l.driver.ask(ctx, do, map[string]any{"of": l.asked.id})
	l.driver.forget(a)
	return line, err
}

func (l *driverLock) TokenOf(key string) int64 { return l.tokens[key] }
func (l *driverLock) Until() time.Time         { return l.until }
func (l *driverLock) Lost() bool               { return l.asked.lost.Load() || !time.Now().Before(l.until) }

// Keep asks the client, which renews the lock by itself, how long it has it.
func (l *driverLock) Keep(ctx context.Context) {
	sent := time.Now()
	if line, err := l.of(ctx, "left"); err == nil {
		l.until = sent.Add(time.Duration(line.Left * float64(time.Second)))
	}
}

func (l *driverLock) Unlock(ctx context.Context) error {
	defer l.driver.forget(l.asked)
	line, err := l.of(ctx, "unlock")
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", locking.ErrUnlockUnknown, err)
	case line.Error == "Lost":
		return fmt.Errorf("%w: %s", locking.ErrNotOwner, line.Text)
	case line.Error != "":
		return fmt.Errorf("%w: %s: %s", locking.ErrUnlockUnknown, line.Error, line.Text)
	}
	return nil
}
