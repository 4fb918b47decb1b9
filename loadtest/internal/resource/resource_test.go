//go:build linux

package resource

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// two opens the same file as two processes would.
func two(t *testing.T, pid int) (a, b *Table) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records")
	tables := make([]*Table, 2)
	for i, p := range []int{pid, os.Getpid()} {
		table, err := open(path, 10, p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		})
		tables[i] = table
	}
	return tables[0], tables[1]
}

func begin(t *testing.T, table *Table, token int64) Execution {
	t.Helper()
	x, err := table.Begin(3, token)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func write(t *testing.T, x Execution) {
	t.Helper()
	if err := x.Write(1); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, table *Table, want Verdict) {
	t.Helper()
	if got := table.Verdict(); got != want {
		t.Errorf("verdict\n %+v, want\n %+v", got, want)
	}
}

func TestTurns(t *testing.T) {
	a, b := two(t, os.Getpid())
	write(t, begin(t, a, 0))
	write(t, begin(t, b, 0))
	x := begin(t, a, 0)
	if x.Value() != 2 {
		t.Errorf("value %d after two writes", x.Value())
	}
	x.End()
	expect(t, b, Verdict{Executions: 2})
}

// TestMany: an execution that stands for several counts as these, and loses as
// one.
func TestMany(t *testing.T) {
	a, b := two(t, os.Getpid())
	if err := begin(t, a, 5).Write(3); err != nil {
		t.Fatal(err)
	}
	x := begin(t, b, 7)
	if x.Value() != 3 {
		t.Errorf("value %d after three writes", x.Value())
	}
	if err := begin(t, a, 8).Write(2); err != nil {
		t.Fatal(err)
	}
	if err := x.Write(2); !errors.Is(err, ErrFenced) {
		t.Errorf("a batch that was overtaken: %v", err)
	}
	first, second := begin(t, a, 0), begin(t, b, 0)
	write(t, second)
	if err := first.Write(2); err != nil {
		t.Fatal(err)
	}
	expect(t, a, Verdict{Executions: 8, Overlaps: 1, Overtaken: 1, Refused: 1, Lost: 1})
}

func TestOverlapAndLostUpdate(t *testing.T) {
	a, b := two(t, os.Getpid())
	first := begin(t, a, 0)
	second := begin(t, b, 0)
	write(t, second)
	write(t, first)
	expect(t, a, Verdict{Executions: 2, Overlaps: 1, Lost: 1})
}

func TestTokens(t *testing.T) {
	a, b := two(t, os.Getpid())
	stale := begin(t, a, 5)
	fresh := begin(t, b, 6)
	if err := stale.Write(1); !errors.Is(err, ErrFenced) {
		t.Errorf("a stale write: %v", err)
	}
	write(t, fresh)
	if _, err := a.Begin(3, 6); !errors.Is(err, ErrFenced) {
		t.Errorf("a token used twice: %v", err)
	}
	write(t, begin(t, a, 7))
	expect(t, b, Verdict{Executions: 2, Overtaken: 1, Refused: 1, Regressions: 1})
}

// TestKilled: one that died inside of the critical section overlaps with
// nobody.
func TestKilled(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	a, b := two(t, gone.Process.Pid)
	begin(t, a, 0)
	write(t, begin(t, b, 0))
	expect(t, b, Verdict{Executions: 1})
}

func TestFind(t *testing.T) {
	a, _ := two(t, os.Getpid())
	if i, ok := a.Find(Name(7)); !ok || i != 7 {
		t.Errorf("Find(%q) = %d, %v", Name(7), i, ok)
	}
	for _, name := range []string{"", "k", Name(10), "x0000001", "k000001", "k-000001", "k00000000001"} {
		if _, ok := a.Find(name); ok {
			t.Errorf("there is a key %q", name)
		}
	}
}
