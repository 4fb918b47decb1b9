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

// TestCopy: the lock of a copy is free while the process lives that has the file, and proves nothing.
func TestCopy(t *testing.T) {
	if lockfile.BootID() == "" {
		t.Skip("the machine has no boot id")
	}
	path := filepath.Join(t.TempDir(), "lock")
	_, l, err := lockfile.Lock(path, "this", 0)
	if err != nil || l.Write("LIVES") != nil {
		t.Fatal(err)
	}
	defer l.Close()
	content, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path+".copy", content, 0o600) != nil || os.WriteFile(path+".new", content, 0o600) != nil || os.Rename(path+".new", path) != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, path + ".copy"} {
		if dead, err := lockfile.Witness(path, "this"); len(dead) > 0 || err != nil {
			t.Errorf("a witness takes %v for dead, %v", dead, err)
		}
		previous, l, err := lockfile.Lock(path, "this", 0)
		if len(previous) > 0 || err != nil {
			t.Errorf("a process takes %v for its predecessor, %v", previous, err)
		}
		l.Close()
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
	if l.Running != nil {
		l.Running.Add(1)
	}
	l.Close()
	if got := said("another"); got != "[] <nil>" {
		t.Errorf("under another boot: %s", got)
	}
	if got := said("this"); got != "[{TWO 600ms}] <nil>" {
		t.Errorf("of a dead process: %s", got)
	}
	if err := os.WriteFile(path, []byte("OTHER this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := said("this"); got != "[] <nil>" {
		t.Errorf("without inode and grace: %s", got)
	}
	if dead, err := lockfile.Witness(path+"x", "this"); err == nil {
		t.Errorf("of a file that is not there: %v", dead)
	}
}

// TestCountAtDeath: a process that has counted nothing at its app leaves it no grace. What the next
// process counts says nothing of the one before it.
func TestCountAtDeath(t *testing.T) {
	path, grace := filepath.Join(t.TempDir(), "lock"), 600*time.Millisecond
	begin := func() *lockfile.File {
		t.Helper()
		_, l, err := lockfile.Lock(path, "this", grace)
		if err != nil {
			t.Fatal(err)
		}
		if l.Running == nil {
			t.Skip("this file system cannot count")
		}
		return l
	}
	said := func(want string) {
		t.Helper()
		if dead, err := lockfile.Witness(path, "this"); fmt.Sprint(dead) != want || err != nil {
			t.Errorf("the witness says %v, %v, want %s", dead, err, want)
		}
	}
	l := begin()
	if l.Write("IDLE") != nil || l.Write("STRUCK") != nil || l.Strike("STRUCK") != nil {
		t.Fatal("cannot write")
	}
	l.Running.Add(2)
	l.Running.Add(-2)
	l.Close()
	said("[{IDLE 0s}]")

	l = begin()
	if err := l.Write("BUSY"); err != nil {
		t.Fatal(err)
	}
	l.Running.Add(3)
	l.Close()
	said("[{IDLE 0s} {BUSY 600ms}]")
	if n, err := lockfile.AtApp(path); n != 3 || err != nil {
		t.Errorf("%d at the app, %v", n, err)
	}

	begin().Close() // it dies before the app of the one before it has ended
	said("[{IDLE 0s} {BUSY 600ms}]")

	l = begin()
	if err := l.Write("ENDS"); err != nil {
		t.Fatal(err)
	}
	l.Running.Add(1)
	if lockfile.Clear(path, 1) == nil {
		t.Error("the count of a living process was cleared")
	}
	l.Close()
	if err := lockfile.Clear(path, 2); err != nil {
		t.Error(err)
	}
	said("[{IDLE 0s} {BUSY 600ms} {ENDS 600ms}]")
	if err := lockfile.Clear(path, 1); err != nil {
		t.Error(err)
	}
	said("[{IDLE 0s} {BUSY 600ms} {ENDS 0s}]")
}

// TestCountIsMissing: lines that are marked as counted have their whole grace in a file without a count.
func TestCountIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	_, l, err := lockfile.Lock(path, "this", 600*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if l.Running == nil {
		t.Skip("this file system cannot count")
	}
	if err := l.Write("ONE"); err != nil {
		t.Fatal(err)
	}
	l.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content[strings.Index(string(content), "ONE"):], 0o600); err != nil {
		t.Fatal(err)
	}
	if dead, err := lockfile.Witness(path, "this"); fmt.Sprint(dead) != "[{ONE 600ms}]" || err != nil {
		t.Error(dead, err)
	}
	if n, err := lockfile.AtApp(path); n != 0 || err != nil {
		t.Errorf("%d at the app, %v", n, err)
	}
}

func BenchmarkCount(b *testing.B) {
	_, l, err := lockfile.Lock(filepath.Join(b.TempDir(), "lock"), "this", time.Second)
	if err != nil || l.Running == nil {
		b.Skip(err)
	}
	for b.Loop() {
		l.Running.Add(1)
		l.Running.Add(-1)
	}
}
