package keyway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// endingVariable makes the test's binary a node that works when it is told to end: it has the
// address at which the nodes meet.
const endingVariable = "KEYWAY_TEST_ENDING"

// slow are settings with which nothing expires while a test runs.
var slow = ring.Settings{TTL: time.Minute, Ring: ring.Config{Partitions: 64}}

// runEnding is a program in the shape of the README's. It reads the key to work on, and a line
// that ends the work.
func runEnding(at string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node, err := keyway.Start(ctx, keyway.Config{Name: "ending", Join: []string{at}, NewCluster: true, Settings: slow, LockFile: os.Getenv("KEYWAY_TEST_LOCK")})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	in.Scan()
	key := in.Text()
	go node.Do(ctx, key, func(keyway.Execution) error {
		fmt.Println("works")
		<-ctx.Done()
		fmt.Println("told to end")
		in.Scan()
		fmt.Println("has worked")
		return nil
	})
	<-ctx.Done()
	return node.Close()
}

// TestNodeEndsItsExecutions: a node whose process is told to end by SIGTERM ends what runs,
// and its keys are free for others at once.
func TestNodeEndsItsExecutions(t *testing.T) {
	at := kit.FreeAddr(t)
	cfg := config(t, "stays", at)
	cfg.Settings, cfg.NewCluster = slow, true
	stays := start(t, cfg)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), endingVariable+"="+at), t.Output()
	in, out := kit.Must(cmd.StdinPipe()), kit.Must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	await := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the process says %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	await("ready")
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
	fmt.Fprintln(in, key)
	await("works")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await("told to end")
	kit.Eventually(t, "the node leaves", func() bool { o, err := stays.Owner(key); return err == nil && o.Name == "stays" })
	fmt.Fprintln(in, "end")
	await("has worked")
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slow.TTL/2)
	defer cancel()
	lock, err := stays.Lock(ctx, key)
	if err != nil {
		t.Fatalf("the key of the process that has ended: %v", err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
