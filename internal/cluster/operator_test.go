package cluster_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An operator drains a worker by its name at the router's admin address, which a token
// guards: without it nothing moves, with it the worker's keys are answered by the other
// one until it is told to come back.
func TestOperatorDrainsAWorker(t *testing.T) {
	d := startDemoWith(t, "10s")
	d.router.Kill()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.router = d.start("router", d.programs.Router, "--new-cluster", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--gossip", "127.0.0.1:0", "--admin-token-file", token)
	d.add("w1")
	d.add("w2")
	ctl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), d.programs.Router, append([]string{"ctl", "--admin", d.router.Admin}, args...)...).CombinedOutput()
		return string(out), err
	}
	answering := func() map[string]bool {
		t.Helper()
		names := make(map[string]bool)
		for _, workers := range d.sendAll(64, 64, "") {
			maps.Copy(names, workers)
		}
		return names
	}
	if out, err := ctl("health"); err != nil {
		t.Fatalf("health: %v: %s", err, out)
	}
	if out, err := ctl("drain", "w1"); err == nil || !strings.Contains(out, "needs a token") {
		t.Errorf("drain without a token: %v: %s", err, out)
	}
	if names := answering(); !names["w1"] {
		t.Errorf("a drain without a token has drained w1: the keys are answered by %v", names)
	}
	if out, err := ctl("drain", "w1", "--admin-token-file", token); err != nil {
		t.Fatalf("drain: %v: %s", err, out)
	}
	if names := answering(); names["w1"] || !names["w2"] {
		t.Errorf("with w1 drained the keys are answered by %v", names)
	}
	if out, err := ctl("undrain", "w1", "--admin-token-file", token); err != nil {
		t.Fatalf("undrain: %v: %s", err, out)
	}
	for deadline := time.Now().Add(time.Minute); !answering()["w1"]; {
		if time.Now().After(deadline) {
			t.Fatal("w1 does not come back")
		}
	}
	stopCleanly(t, d.workers["w1"], d.workers["w2"], d.router)
}
