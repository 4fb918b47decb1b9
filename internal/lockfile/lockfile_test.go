package lockfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/lockfile"
)

// The file names the incarnations of processes that are dead for sure.
// An incarnation that was struck off is not among those that are dead for sure.
func TestStrike(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	_, l, err := lockfile.Lock(path, "this", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ONE", "TWO", "THREE"} {
		if err := l.Write(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Strike("TWO"); err != nil {
		t.Fatal(err)
	}
	if l.Strike("FOUR") == nil {
		t.Error("an incarnation that is not there was struck off")
	}
	l.Close()
	previous, l, err := lockfile.Lock(path, "this", 0)
	if got := fmt.Sprint(previous); got != "[{ONE 0s} {THREE 0s}]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	l.Close()
	if _, none, err := lockfile.Lock("", "this", 0); err != nil || none.Strike("ONE") != nil {
		t.Error("no file: it cannot be struck off")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	previous, first, err := lockfile.Lock(path, "this", 0)
	if err != nil || len(previous) != 0 {
		t.Fatal(previous, err)
	}
	for i := range lockfile.MaxPrevious + 5 {
		if err := first.Write(fmt.Sprintf("id%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := lockfile.Lock(path, "this", 0); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a second lock: %v", err)
	}
	first.Close()
	for range 2 { // they stay until they have been released for sure
		previous, l, err := lockfile.Lock(path, "this", 0)
		if err != nil || len(previous) != lockfile.MaxPrevious || previous[len(previous)-1].ID != fmt.Sprintf("id%d", lockfile.MaxPrevious+4) {
			t.Fatalf("%d incarnations, %v", len(previous), err)
		}
		l.Close()
	}
	for _, boot := range []string{"another", "", "this"} { // under another kernel, the lock proves nothing
		previous, l, err := lockfile.Lock(path, boot, 0)
		if err != nil || len(previous) != 0 {
			t.Errorf("under %q: %v, %v", boot, previous, err)
		}
		l.Close()
	}
	if lockfile.BootID() == "" && runtime.GOOS == "linux" {
		t.Error("no boot id")
	}
	if _, none, err := lockfile.Lock("", "this", 0); err != nil || none.Write("x") != nil {
		t.Error("no lock file", err)
	}
}

// TestWitness: a file testifies once its lock is free, under the boot of its lines alone, and
// says for how long an app may go on.
func TestWitness(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	_, l, err := lockfile.Lock(path, "this", 600*time.Millisecond)
	if err != nil || l.Write("ONE") != nil || l.Write("TWO") != nil || l.Strike("ONE") != nil {
		t.Fatal(err)
	}
	said := func(boot string) string {
		dead, err := lockfile.Witness(path, boot)
		return fmt.Sprint(dead, err)
	}
	if got := said("this"); got != "[] <nil>" {
		t.Errorf("while the process lives: %s", got)
	}
	l.Keep()
	l.Close()
	if got := said("this"); got != "[] <nil>" {
		t.Errorf("while work goes on in a process that has closed its node: %s", got)
	}
	path = filepath.Join(t.TempDir(), "lock")
	_, l, _ = lockfile.Lock(path, "this", 600*time.Millisecond)
	if l.Write("ONE") != nil || l.Write("TWO") != nil || l.Strike("ONE") != nil {
		t.Fatal("cannot write")
	}
	l.Close()
	if got := said("another"); got != "[] <nil>" {
		t.Errorf("under another boot: %s", got)
	}
	if got := said("this"); got != "[{TWO 600ms}] <nil>" {
		t.Errorf("of a dead process: %s", got)
	}
	if err := os.WriteFile(path, []byte("OLD this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := said("this"); got != "[{OLD -1ns}] <nil>" {
		t.Errorf("of an older version: %s", got)
	}
	if dead, err := lockfile.Witness(path+"x", "this"); err == nil {
		t.Errorf("of a file that is not there: %v", dead)
	}
}
