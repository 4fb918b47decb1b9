package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/lockfile"
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
		{"--weight 0", 2, "--weight: 0 is below 0.01"},
		{"--weight 101", 2, "--weight: 101 is above 100"},
		{"--weight heavy", 2, `--weight: "heavy" is not a number`},
		{"--listen 127.0.0.1", 2, "host:port"},
		{"--listen 0.0.0.0:0 --gossip 0.0.0.0:0", 2, "--advertise"},
		{"--listen 127.0.0.1:0 --advertise 192.0.2.1 --gossip 0.0.0.0:0", 2, "--gossip-open"},
		{"--listen " + taken.Addr().String(), 1, "--listen"},
		{"--admin " + taken.Addr().String(), 1, "--admin"},
		{"--gossip " + taken.Addr().String(), 1, "--gossip"},
		{"--upstream ftp://x", 2, "--upstream"},
		{"--upstream http://", 2, "--upstream"},
		{"--batch /batch", 2, "--upstream"},
		{"--upstream http://127.0.0.1:1 --batch batch", 2, "--batch"},
		{"--upstream h2c://127.0.0.1:1 --batch /batch", 2, "Config.App.Batch (--batch)"},
		{"--body-dir /absent", 2, "/absent"},
		{"--upstream-health /up", 2, "--upstream"},
		{"--upstream http://127.0.0.1:1 --upstream-health up", 2, "--upstream-health"},
		{"--key header", 2, "header:NAME"},
		{"--upgrade websocket,h2c", 2, "h2c"},
		{"--session-ttl 1ms", 2, "--session-ttl"},
		{"--on-redis-loss maybe", 2, "--on-redis-loss"},
		{"--gossip-key abc", 2, "16, 24 or 32 bytes"},
		{"--redis http://x", 2, "--redis"},
		{"--store etcd://a/b", 2, "--store"},
		{"--store etcd:a", 2, "etcd://"},
		{"--store zk://a:2181 --listen " + taken.Addr().String(), 2, "etcd://host:2379"}, // before it takes any address
		{"--store etcd://a --redis redis://b", 2, "exclude each other"},
		{"--peer-ca x --peer-key y", 2, "--peer-cert, --peer-key and --peer-ca need each other"},
		{"--lock-file /nonexistent/dir/lock", 2, "--lock-file"},
		{"--supervise", 2, "--lock-file"},
		{"--witness [", 2, "--witness"},
		{"--partitions 0", 2, "--partitions"},
		{"--queue 0", 2, "--queue"},
		{"--config main_test.go", 2, "this is not YAML"},
		{"--queue-per-key many", 2, "--queue-per-key"},
		{"--app-connections 0", 2, "--app-connections"},
		{"--max-connections -1", 2, "--max-connections"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// A restart in front of an app says that it gives the app time, if the process before it had anything there.
func TestRestartInFrontOfAnApp(t *testing.T) {
	for _, tt := range []struct {
		upstream  string
		left      int64
		want, not string
	}{
		{"", 0, "new incarnation", "wait="},
		{"http://127.0.0.1:1", 0, "new incarnation", "wait="},
		{"http://127.0.0.1:1", 1, "incarnation=before wait=1", "level=ERROR"},
	} {
		path := filepath.Join(t.TempDir(), "lock")
		_, l, err := lockfile.Lock(path, lockfile.BootID(), 1500*time.Millisecond)
		if err != nil || l.Write("before") != nil {
			t.Fatal(err)
		}
		if l.Running == nil {
			t.Skip("this file system cannot count")
		}
		l.Running.Add(tt.left)
		l.Close()
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
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
	busy := new(demoKey)
	busy.running.Add(1)
	d.keys.Store("busy", busy)
	if _, a := ask("/", "busy"); !a.Overlap {
		t.Error("an overlap goes unnoticed")
	}
}
