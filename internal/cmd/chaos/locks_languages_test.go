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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// TestChaosLanguages is a short form of the campaign with the clients in all languages among the callers.
func TestChaosLanguages(t *testing.T) {
	redistest.Require(t)
	var here, missing []string
	for _, l := range languages {
		if _, err := exec.LookPath(l.needs); err != nil {
			missing = append(missing, l.debian)
			continue
		}
		here = append(here, l.name)
	}
	if len(here) > 0 {
		args := []string{"-languages", strings.Join(here, ","), "-lockers", "300", "-clients", "16", "-grant", "5s", "-session-ttl", "3s", "-t", "15s"}
		if err := run(t.Context(), args, t.Output(), t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	if len(missing) > 0 {
		t.Skipf("some languages are not installed. As root: scripts/deps %s", strings.Join(missing, " "))
	}
}

func TestLanguagesOf(t *testing.T) {
	for flag, want := range map[string]string{
		"cobol":         `-languages: "cobol" is none of python, javascript, java`,
		"python,python": "-languages: python is there twice",
	} {
		err := run(t.Context(), []string{"-languages", flag}, io.Discard, io.Discard)
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	for _, l := range languages {
		err := run(t.Context(), []string{"-languages", l.name}, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "scripts/deps "+l.debian+" (Debian's package)") {
			t.Errorf("%s is not installed: %v", l.name, err)
		}
	}
}

// fakeDriver speaks as the driver of a client does that knows no other callers.
type fakeDriver struct {
	excludes bool          // it grants a key to one caller at a time
	loses    time.Duration // after a grant, unless it is 0: before the next one, whose caller waits no longer than that

	mu    sync.Mutex // guards what follows
	out   io.Writer
	token int64
	held  map[string]int // ids of locks, by key
	keys  map[int][]string
}

// request is what is asked of a driver.
type request struct {
	ID, Of int
	Do     string
	Keys   []string
}

func (f *fakeDriver) run(in io.Reader) {
	var all sync.WaitGroup
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		all.Go(func() { f.answer(r) })
	}
	all.Wait()
}

func (f *fakeDriver) say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(f.out, "%s\n", text) // chaos may have left
}

func (f *fakeDriver) answer(r request) {
	taken := func() bool {
		return slices.ContainsFunc(r.Keys, func(key string) bool { return f.held[key] != 0 })
	}
	if r.Do == "lock" {
		f.mu.Lock()
		for begin := time.Now(); taken() && (f.excludes || f.loses > 0 && time.Since(begin) < f.loses); f.mu.Lock() {
			f.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	} else {
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	answer := map[string]any{"id": r.ID}
	switch r.Do {
	case "lock":
		f.token++
		tokens := make(map[string]int64)
		for _, key := range r.Keys {
			if before := f.held[key]; before != 0 && f.loses > 0 {
				f.say(map[string]any{"lost": before})
			}
			tokens[key], f.held[key] = f.token, r.ID
		}
		f.keys[r.ID] = r.Keys
		answer["tokens"] = tokens
	case "left":
		answer["left"] = 1
	case "unlock":
		for _, key := range f.keys[r.Of] {
			if f.held[key] == r.Of {
				delete(f.held, key)
			} else if f.loses > 0 {
				answer["error"], answer["text"] = "Lost", "the lock has ended"
			}
		}
	}
	f.say(answer)
}

// The judge finds two holders that a driver reports, and takes its word that a lock is lost.
func TestDriverIsJudged(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		fake       *fakeDriver
	}{
		{"one at a time", "", &fakeDriver{excludes: true}},
		{"two at once", "is held with token", &fakeDriver{}},
		{"one after another has lost it", "was lost though nothing that kept it was", &fakeDriver{loses: 100 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				j := newLockJudge(grantTime, func() time.Duration { return time.Since(begin) })
				tt.fake.held, tt.fake.keys = make(map[string]int), make(map[int][]string)
				in, toFake := io.Pipe()
				fromFake, out := io.Pipe()
				tt.fake.out = out
				go func() {
					tt.fake.run(in)
					out.Close()
				}()
				d := newDriver(toFake, fromFake)
				j.born("fake")
				c := &lockCallers{life: "fake", ttl: 4 * time.Second, tell: func(s said) error { j.hear(s); return nil }}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() { c.run(ctx, rand.New(rand.NewPCG(1, uint64(i))), d.lock) })
				}
				<-ctx.Done()
				j.finish()
				all.Wait()
				toFake.Close()
				<-d.gone
				r := j.conclude(nil, nil, nil, c.ttl)
				t.Logf("%d locks, %d violations", r.by["fake"], len(r.violations))
				if (len(r.violations) == 0) != (tt.want == "") {
					t.Fatalf("%q, want %q", r.violations, tt.want)
				}
				for _, v := range r.violations {
					if !strings.Contains(v, tt.want) {
						t.Errorf("%q, want %q", v, tt.want)
					}
				}
			})
		})
	}
}
