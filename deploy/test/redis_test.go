package test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/internal/test/storetest"
	"github.com/keyway-go/keyway/ring"
)

const password, adminPassword = "a password", "admins-password"

// usersFile writes the users of deploy/redis, with changes, to a file.
func usersFile(t *testing.T, changes ...string) string {
	t.Helper()
	digest := func(password string) string { return fmt.Sprintf("#%x", sha256.Sum256([]byte(password))) }
	changes = append(changes, "#PASSWORD_SHA256", digest(password), "#ADMIN_SHA256", digest(adminPassword))
	acl := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(acl, []byte(strings.NewReplacer(changes...).Replace(read(t, "../redis/users.acl"))), 0o600); err != nil {
		t.Fatal(err)
	}
	return acl
}

// startRedis starts a server with the settings and the users of deploy/redis.
func startRedis(t *testing.T) (server *redistest.Server, url string) {
	t.Helper()
	acl := usersFile(t, "user default off", "user default on nopass ~* &* +@all") // of redistest
	settings := settingsOf(t, "redis.conf", acl)
	server = redistest.Start(t, append(settings, "--appendfsync", "no")...) // a kill loses nothing, and no disk is waited for
	return server, "redis://keyway:a%20password@" + server.Addr()
}

// settingsOf returns the settings of files of deploy/redis as arguments of redis-server.
func settingsOf(t *testing.T, file, acl string) (settings []string) {
	for line := range strings.Lines(read(t, "../redis/"+file)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "", "#":
		case "include":
			settings = append(settings, settingsOf(t, filepath.Base(value), acl)...)
		case "aclfile":
			settings = append(settings, "--aclfile", acl)
		default:
			settings = append(settings, "--"+name, strings.ReplaceAll(value, "ADMIN_PASSWORD", adminPassword))
		}
	}
	return settings
}

// A Redis takes the settings for its kind, which include each other.
func TestSettingsOfReplicasAndClusters(t *testing.T) {
	acl := usersFile(t, "user default off", "user default on nopass ~* &* +@all") // of redistest
	for file, want := range map[string]string{"replicated.conf": "min-replicas-to-write 1", "cluster.conf": "cluster-node-timeout 1000"} {
		server := redistest.Start(t, settingsOf(t, file, acl)...)
		name, value, _ := strings.Cut(want, " ")
		for name, value := range map[string]string{name: value, "maxmemory-policy": "noeviction", "appendonly": "yes"} {
			if got := strings.Fields(server.CLI("config", "get", name)); len(got) != 2 || got[1] != value {
				t.Errorf("%s: %s is %q, want %s", file, name, got, value)
			}
		}
	}
}

// Replicas and Sentinels find the users of users.acl as they need them: a replica takes a dead primary's place.
func TestSentinelWithTheUsersOfTheACL(t *testing.T) {
	settings := append(settingsOf(t, "replicated.conf", usersFile(t)), "--appendfsync", "no")
	primary := redistest.Start(t, settings...)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	for range 2 {
		redistest.Start(t, append(settings, "--replicaof", host+" "+port)...)
	}
	kit.Eventually(t, "both replicas follow the primary", func() bool {
		return strings.Count(primary.CLI("--no-auth-warning", "--user", "admin", "--pass", adminPassword, "info", "replication"), "state=online") == 2
	})
	addr := kit.FreeAddr(t)
	_, sentinelPort, _ := strings.Cut(addr, ":")
	file := filepath.Join(t.TempDir(), "sentinel.conf") // Sentinel writes to it
	text := strings.NewReplacer("port 26379", "port "+sentinelPort, "redis-1 6379 2", host+" "+port+" 1", "ADMIN_PASSWORD", adminPassword).Replace(read(t, "../redis/sentinel.conf"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := exec.Command("redis-sentinel", file)
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sentinel.Process.Kill()
		_ = sentinel.Wait()
	}()
	client, err := fallback.NewClient("redis-sentinel://keyway:a%20password@" + addr + "?master=keyway")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	writes := func() bool { return client.Set(t.Context(), "keyway:lock:key", "1", 0).Err() == nil }
	kit.Eventually(t, "the primary takes a write", writes)
	primary.Kill()
	kit.Eventually(t, "a promoted replica, which another one follows, takes a write", writes)
}

// The store does all that it has to as the user of users.acl, which refuses it nothing.
func TestStoreAsTheUserOfTheACL(t *testing.T) {
	server, url := startRedis(t)
	const ttl = time.Second
	storetest.Conformance(t, func(t *testing.T) storetest.Harness {
		settings := ring.Settings{Cluster: rand.Text(), TTL: ttl}
		open := func(t *testing.T, settings ring.Settings, newCluster bool) storetest.Store {
			s, err := store.New(url, store.Config{Settings: settings, NewCluster: newCluster, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		return storetest.Harness{
			TTL:    ttl,
			Elapse: func(d time.Duration) { <-time.After(d) },
			Now:    time.Now,
			Open:   func(t *testing.T, newCluster bool) storetest.Store { return open(t, settings, newCluster) },
			OpenWith: func(t *testing.T, change func(*ring.Settings)) storetest.Store {
				other := settings
				change(&other)
				return open(t, other, false)
			},
		}
	})
	refusedNothing(t, server)
}

func refusedNothing(t *testing.T, server *redistest.Server) {
	t.Helper()
	if refused := server.CLI("acl", "log"); strings.TrimSpace(refused) != "" {
		t.Errorf("Redis has refused:\n%s", refused)
	}
}

// Each kind of lock, waiters included, does all that it has to as that user.
func TestLocksAsTheUserOfTheACL(t *testing.T) {
	server, url := startRedis(t)
	client, err := fallback.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, config := range map[string]lock.Config{"any order": {HandOverFor: 1}, "FIFO": {FIFO: true, Prefix: "keyway:lock:fifo:"}} {
		t.Run(name, func(t *testing.T) {
			var lockers [2]*lock.Locker // of two processes
			for i := range lockers {
				if lockers[i], err = lock.New(client, config); err != nil {
					t.Fatal(err)
				}
				defer lockers[i].Close()
			}
			tryLocks(t, lockers[0], lockers[1])
		})
	}
	refusedNothing(t, server)
}

func tryLocks(t *testing.T, a, b *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(held *lock.Lock, err error) *lock.Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	first := must(a.Lock(ctx, "key"))
	if err := first.Extend(ctx, 0); err != nil {
		t.Error(err)
	}
	waited := make(chan error, 1)
	go func() {
		second, err := b.Lock(ctx, "key")
		if err == nil {
			err = second.Unlock(ctx)
		}
		waited <- err
	}()
	if _, err := b.State(ctx, "key"); err != nil {
		t.Error(err)
	}
	if err := first.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	both := must(a.LockAll(ctx, []string{"one", "two"}))
	if err := both.Unlock(ctx); err != nil {
		t.Error(err)
	}
	write := must(a.Lock(ctx, "shared"))
	if err := write.Downgrade(ctx); err != nil {
		t.Error(err)
	}
	read := must(b.RLock(ctx, "shared"))
	handle, err := must(a.Lock(ctx, "moved")).Detach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []*lock.Lock{write, read, must(b.Attach(ctx, handle))} {
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Commands that scripts use in rare cases only are allowed too.
func TestACLAllowsEachCommandOfTheScripts(t *testing.T) {
	allowed := strings.ToLower(read(t, "../redis/users.acl"))
	scripts, err := filepath.Glob("../../fallback/*/lua/*.lua")
	if err != nil || len(scripts) < 10 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	call := regexp.MustCompile(`redis\.p?call\('([A-Za-z]+)'`)
	for _, script := range scripts {
		for _, found := range call.FindAllStringSubmatch(read(t, script), -1) {
			if !strings.Contains(allowed, "+"+strings.ToLower(found[1])+" ") && !strings.HasSuffix(strings.TrimSpace(allowed), "+"+strings.ToLower(found[1])) {
				t.Errorf("%s calls %s, which users.acl does not allow", script, found[1])
			}
		}
	}
}
