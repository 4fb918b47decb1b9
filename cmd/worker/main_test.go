package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
)

func TestUsageErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		args string
		code int
		want string
	}{
		{"--nope", 2, "unknown flag --nope"},
		{"--listen 127.0.0.1", 2, "host:port"},
		{"--listen 0.0.0.0:0 --gossip 0.0.0.0:0", 2, "--advertise"},
		{"--listen " + taken.Addr().String(), 1, "--listen"},
		{"--admin " + taken.Addr().String(), 1, "--admin"},
		{"--gossip " + taken.Addr().String(), 1, "--gossip"},
		{"--upstream ftp://x", 2, "--upstream"},
		{"--upstream http://", 2, "--upstream"},
		{"--key header", 2, "header:NAME"},
		{"--upgrade websocket,h2c", 2, "h2c"},
		{"--session-ttl 1ms", 2, "--session-ttl"},
		{"--on-redis-loss maybe", 2, "--on-redis-loss"},
		{"--gossip-key abc", 2, "16, 24 or 32 bytes"},
		{"--redis http://x", 2, "--redis"},
		{"--lock-file /nonexistent/dir/lock", 2, "--lock-file"},
		{"--partitions 0", 2, "--partitions"},
		{"--queue 0", 2, "--queue"},
		{"--queue-per-key many", 2, "--queue-per-key"},
		{"--app-connections 0", 2, "--app-connections"},
		{"--max-connections -1", 2, "--max-connections"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			args := append([]string{"--join", "127.0.0.1:1"}, strings.Fields(tt.args)...)
			err := run(ctx, args, io.Discard, io.Discard)
			if err == nil || cli.ExitCode(err) != tt.code || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v (exit code %d), want code %d and one line with %q", err, cli.ExitCode(err), tt.code, tt.want)
			}
		})
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"--help"}, &out, io.Discard)
	if cli.ExitCode(err) != 0 {
		t.Fatal(err)
	}
	for _, name := range []string{"listen", "admin", "gossip", "join", "cluster", "name", "upstream", "redis", "session-ttl", "drain-timeout", "on-redis-loss", "new-cluster", "lock-file", "log", "log-level"} {
		if !strings.Contains(out.String(), "  --"+name+" ") && !strings.Contains(out.String(), "  --"+name+"\n") {
			t.Errorf("--help does not explain --%s", name)
		}
	}
}

func TestInterruptedWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := run(ctx, []string{"--join", "127.0.0.1:1"}, io.Discard, io.Discard); err != nil {
		t.Errorf("a worker that is told to end while it waits for a router: %v", err)
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	previous, first, err := lockIncarnations(path, "this boot")
	if err != nil || len(previous) != 0 {
		t.Fatal(previous, err)
	}
	for i := range maxPrevious + 5 {
		if err := first.write(fmt.Sprintf("id%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := lockIncarnations(path, "this boot"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a second lock: %v", err)
	}
	first.close()
	for range 2 { // they stay until they have been released for sure
		previous, l, err := lockIncarnations(path, "this boot")
		if err != nil || len(previous) != maxPrevious || previous[len(previous)-1] != fmt.Sprintf("id%d", maxPrevious+4) {
			t.Fatalf("%d incarnations, %v", len(previous), err)
		}
		l.close()
	}
	for _, boot := range []string{"another boot", "", "this boot"} { // under another kernel, the lock proves nothing
		previous, l, err := lockIncarnations(path, boot)
		if err != nil || len(previous) != 0 {
			t.Errorf("under %q: %q, %v", boot, previous, err)
		}
		l.close()
	}
	if bootID() == "" && runtime.GOOS == "linux" {
		t.Error("no boot id")
	}
	if _, none, err := lockIncarnations("", "this boot"); err != nil || none.write("x") != nil {
		t.Error("no lock file", err)
	}
}

// A restart in front of an app says that it gives the app time.
func TestRestartInFrontOfAnApp(t *testing.T) {
	for _, tt := range []struct{ upstream, want, not string }{
		{"", "new incarnation", "wait="},
		{"http://127.0.0.1:1", "wait=1.5s", "level=ERROR"},
	} {
		path := filepath.Join(t.TempDir(), "lock")
		_, l, err := lockIncarnations(path, bootID())
		if err != nil || l.write("before") != nil {
			t.Fatal(err)
		}
		l.close()
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		lines, log := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			args := []string{"--redis", "redis://127.0.0.1:1", "--lock-file", path, "--upstream", tt.upstream}
			ended <- run(ctx, args, io.Discard, log)
			log.Close()
		}()
		found := false
		for in := bufio.NewScanner(lines); in.Scan(); {
			if strings.Contains(in.Text(), tt.want) {
				found = true
				end()
			}
			if strings.Contains(in.Text(), tt.not) {
				t.Errorf("upstream %q: %s", tt.upstream, in.Text())
			}
		}
		if err := <-ended; err != nil || !found {
			t.Errorf("upstream %q: %v; %q logged: %v", tt.upstream, err, tt.want, found)
		}
	}
}

func TestDemoApp(t *testing.T) {
	d := &demo{worker: "w"}
	ask := func(target, key string) (*httptest.ResponseRecorder, demoAnswer) {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set(gateway.HeaderKey, key)
		r.Header.Set(gateway.HeaderPartition, "7")
		out := httptest.NewRecorder()
		d.ServeHTTP(out, r)
		var a demoAnswer
		_ = json.Unmarshal(out.Body.Bytes(), &a)
		return out, a
	}
	for i := range int64(3) {
		if _, a := ask("/", "a%20b"); a.Key != "a b" || a.Worker != "w" || a.Partition != 7 || a.Count != i+1 || a.Overlap {
			t.Errorf("%+v", a)
		}
	}
	for _, hold := range []string{"x", "-1s", "2m"} {
		if out, _ := ask("/?hold="+hold, "k"); out.Code != http.StatusBadRequest {
			t.Errorf("hold=%s: %d", hold, out.Code)
		}
	}
	if out, _ := ask("/", ""); out.Code != http.StatusBadRequest {
		t.Errorf("no key: %d", out.Code)
	}
	// It would notice an overlap.
	k, _ := d.begin("busy")
	if _, a := ask("/", "busy"); !a.Overlap {
		t.Error("an overlap goes unnoticed")
	}
	d.end(k)
}

// fakeMembers is a membership that a test changes.
type fakeMembers struct {
	mu      sync.Mutex
	view    *ring.View
	changed chan struct{}
}

// set makes the members routers that offer these stores.
func (m *fakeMembers) set(stores ...string) { m.setView(routers(stores), nil) }

func routers(stores []string) (members []ring.Member) {
	for i, s := range stores {
		members = append(members, ring.Member{Name: fmt.Sprint("r", i), Role: ring.RoleRouter, State: ring.StateActive, Store: s})
	}
	return members
}

func (m *fakeMembers) setView(members, refused []ring.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = ring.NewView(nil, members)
	m.view.Refused = refused
	if m.changed != nil {
		close(m.changed)
	}
	m.changed = make(chan struct{})
}

func (m *fakeMembers) View() *ring.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

func (m *fakeMembers) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// A worker follows the router's store to its next life, also where that is
// another store than before, and does not choose between two.
func TestFollowsOfferedStore(t *testing.T) {
	var urls []string
	for range 3 {
		e, err := store.StartEmbedded("127.0.0.1:0", "secret")
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		urls = append(urls, e.URL())
	}
	members := new(fakeMembers)
	members.set()
	var log bytes.Buffer
	var opened []string
	unusable := make(chan struct{}, 1)
	open := func(url string, _ ring.StoreID) (*store.Store, error) {
		if url == "unusable" {
			unusable <- struct{}{}
			return nil, errors.New("not a URL")
		}
		opened = append(opened, url)
		return store.New(url, store.Config{NewCluster: true, Logger: slog.New(slog.DiscardHandler)})
	}
	logger := slog.New(slog.NewTextHandler(&log, nil))

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ended"))
	if _, err := openOffered(ended, members, open, logger); err == nil {
		t.Error("it opened a store that nobody offers")
	}
	members.set(urls[0])
	s, err := openOffered(t.Context(), members, open, logger)
	if err != nil {
		t.Fatal(err)
	}
	hints := s.Watch(t.Context())
	latest, err := s.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	came := func() {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for {
			select {
			case <-hints:
			case <-deadline:
				t.Fatalf("it stays with what was offered before: opened %v", opened)
			}
			if next, err := s.Generation(t.Context()); err == nil && next != latest {
				latest = next
				return
			}
		}
	}
	members.set("unusable")
	select {
	case <-unusable:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not follow")
	}
	members.setView(routers(urls[1:2]), routers(urls[2:]))
	came()
	members.setView(nil, routers(urls[2:]))
	came()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(opened, urls) {
		t.Errorf("opened %v", opened)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log shows the password:\n%s", &log)
	}

	members.set(urls...)
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := openOffered(waiting, members, open, logger); err == nil || !strings.Contains(log.String(), "--redis") {
		t.Errorf("with two stores on offer: %v\n%s", err, &log)
	}
}

// The other program accepts this one's environment variables: both may be
// started with the same environment.
func TestFlagsAreKnownToTheOtherProgram(t *testing.T) {
	var help bytes.Buffer
	_ = run(t.Context(), []string{"--help"}, &help, io.Discard)
	flags := regexp.MustCompile(`(?m)^  --([a-z-]+)`).FindAllStringSubmatch(help.String(), -1)
	if len(flags) < 10 {
		t.Fatalf("found %d flags in the help", len(flags))
	}
	for _, flag := range flags {
		t.Setenv(cli.EnvName(flag[1]), "x")
		if err := cli.NewFlags("other", "").Parse(nil, io.Discard); err != nil {
			t.Errorf("--%s: add it to programFlags of internal/cli: %v", flag[1], err)
		}
		os.Unsetenv(cli.EnvName(flag[1]))
	}
}
