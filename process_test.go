package keyway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/lockfile"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// nodeVariable makes the test's binary a node: its name, the address at which the
// nodes meet and a directory.
const nodeVariable = "KEYWAY_TEST_NODE"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(nodeVariable)); len(args) == 3 {
		if err := runNode(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, args[0], err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if at := os.Getenv(endingVariable); at != "" {
		if err := runEnding(at); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// processes are settings for nodes that die.
var processes = ring.Settings{TTL: 4 * time.Second, Ring: ring.Config{Partitions: 64}}

// runNode is a node in a process of its own, whose handler fails where another one
// has the same key: each locks a file of the key. A request for the path /die kills it.
func runNode(name, at, dir string) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", name)
	fallback.LogRedis(logger, slog.LevelDebug)
	node, err := keyway.Start(context.Background(), keyway.Config{
		Name: name, Join: []string{at}, Admin: "127.0.0.1:0", Settings: processes,
		Logger: logger,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, _ := gateway.KeyFromHeader(r.Header)
			if r.URL.Path == "/die" {
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = self.Kill()
				}
				http.Error(w, fmt.Sprint("still alive: ", err), http.StatusInternalServerError)
				return
			}
			_, lock, err := lockfile.Lock(filepath.Join(dir, key), "", 0)
			if err != nil {
				http.Error(w, "overlap: "+err.Error(), http.StatusConflict)
				return
			}
			defer lock.Close()
			fmt.Fprint(w, name)
		}),
	})
	if err != nil {
		return err
	}
	defer node.Close()
	fmt.Println(node.AdminAddr())
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// process is a node in a process of its own.
type process struct {
	name, admin string
	cmd         *exec.Cmd
}

func startProcess(t *testing.T, name, at, dir string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+name+" "+at+" "+dir)
	p.cmd.Stderr = t.Output()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() { stdin.Close(); p.cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s ended before it was ready: %w", name, err)
	}
	p.admin = strings.TrimSpace(line)
	return p, nil
}

// stores returns the names of those that offer a store, as p sees them.
func (p *process) stores(t *testing.T) (names []string) {
	t.Helper()
	_, body := kit.Fetch(t, "http://"+p.admin+"/members")
	var view struct{ Members []struct{ Name, Role string } }
	if err := json.Unmarshal([]byte(body), &view); err != nil {
		t.Fatal(err)
	}
	for _, m := range view.Members {
		if name, ok := strings.CutPrefix(m.Name, "store-"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Processes that start at the same moment use one store; when the one that has it
// is killed, another has it, and no key is ever at two of them.
func TestTrapStoreDiesWithItsProcess(t *testing.T) {
	at, dir := kit.FreeAddr(t), t.TempDir()
	all := make([]*process, 3)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			p, err := startProcess(t, fmt.Sprint("n", i), at, dir)
			if err != nil {
				t.Error(err)
			}
			all[i] = p
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	client, err := keyway.NewClient(t.Context(), keyway.ClientConfig{Join: []string{at}, Settings: processes})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	kit.Eventually(t, "all see one store", func() bool {
		for _, p := range all {
			if len(p.stores(t)) != 1 {
				return false
			}
		}
		return true
	})

	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	answers := make(chan string)
	for i := range 8 {
		calling.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name, err := call(ctx, client, fmt.Sprint("k", (i+n)%12))
				switch {
				case ctx.Err() != nil:
				case err == nil:
					select {
					case answers <- name:
					case <-ctx.Done():
					}
				case !errors.Is(err, keyway.ErrMayHaveRun) && !errors.Is(err, keyway.ErrUnavailable):
					t.Error(err)
				}
			}
		})
	}
	defer calling.Wait()
	defer stop()
	await := func(names ...string) {
		t.Helper()
		seen := make(map[string]bool)
		for len(seen) < len(names) {
			select {
			case name := <-answers:
				for _, want := range names {
					seen[want] = seen[want] || name == want
				}
			case <-time.After(time.Minute):
				t.Fatalf("only %v answer, want %v", seen, names)
			}
		}
	}
	await("n0", "n1", "n2")
	died := all[0].stores(t)[0]
	var left []string
	var survivor *process
	for _, p := range all {
		if p.name == died {
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		left, survivor = append(left, p.name), p
	}
	for deadline := time.Now().Add(40 * time.Second); ; {
		if s := survivor.stores(t); len(s) == 1 && s[0] != died {
			break
		}
		await(left[0]) // somebody, now or once there is a store again
		if time.Now().After(deadline) {
			t.Fatalf("no survivor keeps a store: %v", survivor.stores(t))
		}
	}
	await(left...)
	for i := range 12 { // also the keys of the one that was killed
		if _, err := call(t.Context(), client, fmt.Sprint("k", i)); err != nil {
			t.Error(err)
		}
	}
}

// call asks whoever owns a key for its name.
func call(ctx context.Context, client *keyway.Client, key string) (name string, err error) {
	return callPath(ctx, client, "/", key)
}

func callPath(ctx context.Context, client *keyway.Client, path, key string) (name string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app"+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(gateway.HeaderKey, key)
	res, err := client.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", key, res.StatusCode, body)
	}
	return string(body), err
}
