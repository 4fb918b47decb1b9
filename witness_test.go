package keyway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/lockfile"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// TestAWitnessHasKeysTakenOver: a process is killed, and a node of its machine answers for its keys
// at once, for the kernel says that it is dead; not before an app's grace has passed.
func TestAWitnessHasKeysTakenOver(t *testing.T) {
	at, dir := kit.FreeAddr(t), t.TempDir()
	cfg := config(t, "stays", at)
	cfg.Settings, cfg.NewCluster = slow, true
	cfg.LockFile, cfg.Witness = filepath.Join(dir, "stays.lock"), filepath.Join(dir, "*.lock")
	stays := start(t, cfg)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), endingVariable+"="+at, "KEYWAY_TEST_LOCK="+filepath.Join(dir, "ending.lock")), t.Output()
	in, out := kit.Must(cmd.StdinPipe()), kit.Must(cmd.StdoutPipe())
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var state string
	if _, err := fmt.Fscanln(out, &state); err != nil || state != "ready" {
		t.Fatal(state, err)
	}
	key := ""
	kit.Eventually(t, "the other node owns a key", func() bool {
		for i := range 64 {
			key = fmt.Sprint("k", i)
			if owner, err := stays.Owner(key); err == nil && owner.Name == "ending" {
				return true
			}
		}
		return false
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slow.TTL/4)
	defer cancel()
	kit.Eventually(t, "the key is here", func() bool {
		return stays.Do(ctx, key, func(keyway.Execution) error { return nil }) == nil
	})
}

// TestAWitnessWaitsForTheApp: the incarnation of a lock file that is free is released, no sooner
// than after the grace that the file gives its app, unless that has nothing to do for it any more.
func TestAWitnessWaitsForTheApp(t *testing.T) {
	at, dir := kit.FreeAddr(t), t.TempDir()
	cfg := config(t, "witness", at)
	cfg.Settings, cfg.NewCluster, cfg.Witness = slow, true, filepath.Join(dir, "*")
	start(t, cfg)
	cfg = config(t, "other", at)
	cfg.Settings = slow
	other := start(t, cfg)
	for _, tt := range []struct {
		name  string
		left  int64 // at the app
		grace time.Duration
		ends  bool // the app does, within the grace
	}{
		{"busy", 1, 400 * time.Millisecond, false},
		{"idle", 0, time.Hour, false},
		{"ends", 1, time.Hour, true},
	} {
		path := filepath.Join(dir, tt.name)
		_, lock, err := lockfile.Lock(path, lockfile.BootID(), tt.grace)
		first := other.Local().Incarnation()
		if err != nil || lock.Write(first) != nil {
			t.Fatal(err)
		}
		if lock.Running == nil {
			t.Skip("this file system cannot count")
		}
		lock.Running.Add(tt.left)
		lock.Close()
		free := time.Now()
		if tt.ends {
			if err := lockfile.Clear(path, tt.left); err != nil {
				t.Fatal(err)
			}
		}
		kit.Eventually(t, "the incarnation is released", func() bool { return other.Local().Incarnation() != first })
		if took := time.Since(free); tt.grace < time.Hour && took < tt.grace {
			t.Errorf("%s: it was released after %v, want no sooner than after %v", tt.name, took, tt.grace)
		}
	}
}

// TestTrapClosedNodeStillWorks: a node that was closed while a function runs keeps its lock file:
// its process is not dead, so nothing is proved.
func TestTrapClosedNodeStillWorks(t *testing.T) {
	cfg := config(t, "node", kit.FreeAddr(t))
	cfg.NewCluster, cfg.LockFile, cfg.DrainTimeout = true, filepath.Join(t.TempDir(), "lock"), time.Millisecond
	node := start(t, cfg)
	begun, end, ended := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		ended <- node.Do(t.Context(), "k", func(keyway.Execution) error { close(begun); <-end; return nil })
	}()
	<-begun
	if err := node.Close(); err == nil {
		t.Error("no error though a function runs")
	}
	if dead, err := lockfile.Witness(cfg.LockFile, lockfile.BootID()); len(dead) > 0 || err != nil {
		t.Errorf("while it runs a witness takes %v for dead, %v", dead, err)
	}
	close(end)
	<-ended
}

// TestTrapFailedStartStillWorks: a node serves keys while it starts. If the start fails while a handler runs, the
// node keeps its lock file.
func TestTrapFailedStartStillWorks(t *testing.T) {
	server := kit.Must(store.StartEmbedded("127.0.0.1:0", ""))
	defer server.Close()
	open := func(c store.Config) (keyway.Store, error) { return store.New(server.URL(), c) }
	others := kit.Must(open(store.Config{Settings: slow, NewCluster: true}))
	defer others.Close()
	gen := kit.Must(others.Generation(t.Context(), true))
	kit.Must(others.Register(t.Context(), gen, records.Session{Incarnation: "other"}, slow.TTL, nil))
	kit.Must(others.Apply(t.Context(), gen, "other", []records.Change{{Op: records.OpClaim, Partition: 0}})) // which the start waits for
	cfg := config(t, "node", kit.FreeAddr(t))
	cfg.Settings, cfg.NewCluster, cfg.Store, cfg.Direct = slow, true, open, true
	cfg.Listener, cfg.Keys = kit.Must(net.Listen("tcp", "127.0.0.1:0")), kit.KeySources(t, "header:X-Key")
	cfg.LockFile = filepath.Join(t.TempDir(), "lock")
	begun, end := make(chan bool), make(chan bool)
	defer close(end)
	cfg.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-end })
	key := ""
	for i := 0; key == "" || slow.Ring.Partition(key) == 0; i++ {
		key = fmt.Sprint("k", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			req := kit.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cfg.Listener.Addr().String(), nil))
			req.Header.Set("X-Key", key)
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
		}
	}()
	go func() {
		<-begun
		cancel()
	}()
	if node, err := keyway.Start(ctx, cfg); err == nil {
		node.Close()
		t.Fatal("the start did not fail")
	}
	<-begun
	if dead, err := lockfile.Witness(cfg.LockFile, lockfile.BootID()); len(dead) > 0 || err != nil {
		t.Errorf("while a handler runs a witness takes %v for dead, %v", dead, err)
	}
}
