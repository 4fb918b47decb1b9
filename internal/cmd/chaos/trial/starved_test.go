package trial

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHunger says of which process a thread has waited for a CPU since the last look, whatever it waited before.
func TestHunger(t *testing.T) {
	dir := t.TempDir()
	thread := func(pid, tid int, waited time.Duration) {
		t.Helper()
		of := filepath.Join(dir, fmt.Sprint(pid), "task", fmt.Sprint(tid))
		if err := os.MkdirAll(of, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(of, "schedstat"), fmt.Appendf(nil, "12345 %d 7\n", waited.Nanoseconds()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := hunger{proc: dir}
	look := func(at time.Duration, want string, wait time.Duration) {
		t.Helper()
		who, got := h.look(at, map[string]int{"w1#1": 1, "w2#1": 2, "gone": 3})
		if who != want || got != wait {
			t.Errorf("at %v %q has waited for %v, want %q, %v", at, who, got, want, wait)
		}
	}
	thread(1, 10, 9*time.Second)
	thread(2, 20, 0)
	look(1*time.Second, "", 0)
	thread(1, 10, 9*time.Second+899*time.Millisecond)
	thread(2, 20, 900*time.Millisecond)
	thread(2, 21, 5*time.Second)
	look(2*time.Second, "w2#1", 900*time.Millisecond)
	look(3*time.Second, "", 0)
	thread(1, 10, 10*time.Second)
	look(4*time.Second, "", 0)
	thread(2, 21, 8*time.Second)
	look(5*time.Second, "w2#1", 3*time.Second)
}

// TestStarve joins the stretches of one process that meet.
func TestStarve(t *testing.T) {
	var r Report
	r.starve("w1#1", 1*time.Second, 2*time.Second)
	r.starve("w1#1", 2*time.Second, 3*time.Second)
	r.starve("w2#1", 3*time.Second, 4*time.Second)
	r.starve("w2#1", 6*time.Second, 7*time.Second)
	var got []string
	for _, f := range r.starved {
		got = append(got, fmt.Sprintf("%s from %v to %v", f.Process, f.Begin, f.End))
	}
	if want := "[w1#1 from 1s to 3s w2#1 from 3s to 4s w2#1 from 6s to 7s]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	r.trial = &Trial{Plan: Plan{TTL: 100 * time.Millisecond}}
	// Each stretch counts for three TTLs and the slack more: the first ones until 5.8 s, the last one from 6 s on.
	for now, want := range map[time.Duration]time.Duration{2 * time.Second: time.Second, 20 * time.Second: 4800*time.Millisecond + 2800*time.Millisecond} {
		if got := r.doubtful(now); got != want {
			t.Errorf("doubtful for %v of %v, want %v", got, now, want)
		}
	}
}
