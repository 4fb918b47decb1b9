package lockfile_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/lockfile"
)

// The file names the incarnations of processes that are dead for sure.
// An incarnation that was struck off is not among those that are dead for sure.
func TestStrike(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	_, l, err := lockfile.Lock(path, "this boot")
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
	previous, l, err := lockfile.Lock(path, "this boot")
	if got := fmt.Sprint(previous); got != "[ONE THREE]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	l.Close()
	if _, none, err := lockfile.Lock("", "this boot"); err != nil || none.Strike("ONE") != nil {
		t.Error("no file: it cannot be struck off")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	previous, first, err := lockfile.Lock(path, "this boot")
	if err != nil || len(previous) != 0 {
		t.Fatal(previous, err)
	}
	for i := range lockfile.MaxPrevious + 5 {
		if err := first.Write(fmt.Sprintf("id%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := lockfile.Lock(path, "this boot"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a second lock: %v", err)
	}
	first.Close()
	for range 2 { // they stay until they have been released for sure
		previous, l, err := lockfile.Lock(path, "this boot")
		if err != nil || len(previous) != lockfile.MaxPrevious || previous[len(previous)-1] != fmt.Sprintf("id%d", lockfile.MaxPrevious+4) {
			t.Fatalf("%d incarnations, %v", len(previous), err)
		}
		l.Close()
	}
	for _, boot := range []string{"another boot", "", "this boot"} { // under another kernel, the lock proves nothing
		previous, l, err := lockfile.Lock(path, boot)
		if err != nil || len(previous) != 0 {
			t.Errorf("under %q: %q, %v", boot, previous, err)
		}
		l.Close()
	}
	if lockfile.BootID() == "" && runtime.GOOS == "linux" {
		t.Error("no boot id")
	}
	if _, none, err := lockfile.Lock("", "this boot"); err != nil || none.Write("x") != nil {
		t.Error("no lock file", err)
	}
}
