package worker_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// logged returns a change that has a worker log to a buffer.
func logged(logs *kit.Buffer) func(*worker.Config) {
	return func(cfg *worker.Config) { cfg.Logger = slog.New(slog.NewJSONHandler(logs, nil)) }
}

// loggedAs returns what was logged with a message.
func loggedAs(t *testing.T, logs *kit.Buffer, message string) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(logs.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

// moved returns the moves of a worker of that kind once all workers have noted theirs, and
// fails the test if there are more or fewer than one. It is for a bubble.
func moved(t *testing.T, w *site.Worker, direction, reason string) status.Move {
	t.Helper()
	synctest.Wait()
	all := w.Status().Moves
	found := slices.DeleteFunc(slices.Clone(all), func(m status.Move) bool { return m.Direction != direction || m.Reason != reason })
	if len(found) != 1 {
		t.Errorf("%d moves are %s for %s, want 1: %+v", len(found), direction, reason, all)
		return status.Move{}
	}
	return found[0]
}

// together waits until two workers serve all partitions, and each has some.
func together(t *testing.T, a, b *site.Worker) {
	t.Helper()
	kit.Eventually(t, "both serve", func() bool {
		return a.Serving()+b.Serving() == a.Ring.Partitions && a.Serving() > 0 && b.Serving() > 0
	})
	time.Sleep(time.Second)
}

// A worker remembers what it took over and gave away, from whom, why and how long it
// took, and says each in one line of its log.
func TestMovesOfAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, logs := site.New(t, 64), [2]*kit.Buffer{new(kit.Buffer), new(kit.Buffer)}
		a := c.Start(logged(logs[0]))
		a.AwaitServing(t, 64)
		time.Sleep(time.Second)
		if m := moved(t, a, "taken", "unowned"); m.Partitions != 64 || m.Worker != "" || m.Residue != 0 {
			t.Errorf("the first worker took %+v", m)
		}
		var wg sync.WaitGroup
		release := make(chan struct{})
		for p := range 64 {
			wg.Go(func() {
				_ = a.Do(t.Context(), keyIn(c.Ring, p), func(gateway.Execution) error { <-release; return nil })
			})
		}
		synctest.Wait()
		b := c.Start(logged(logs[1]))
		together(t, a, b)
		given, taken := moved(t, a, "given", "join"), moved(t, b, "taken", "join")
		n := b.Serving()
		if given.Partitions != n || given.Worker != "w2" || given.Residue != n || given.LongestSeconds > 1 {
			t.Errorf("given: %+v, want %d partitions to w2 with a key each", given, n)
		}
		if taken.Partitions != n || taken.Worker != "w1" || taken.Residue != n || taken.Running != n || taken.LongestSeconds < 0.29 || taken.LongestSeconds > 3 {
			t.Errorf("taken: %+v, want %d partitions from w1 with a key each, after the time to settle", taken, n)
		}
		line := loggedAs(t, logs[1], "partitions taken over")
		if len(line) != 1 || line[0]["from"] != "w1" || line[0]["partitions"] != float64(n) || line[0]["keys_still_running_there"] != float64(n) {
			t.Errorf("log of the taker: %v", line)
		}
		if line := loggedAs(t, logs[0], "partitions given away"); len(line) != 1 || line[0]["to"] != "w2" || line[0]["partitions"] != float64(n) {
			t.Errorf("log of the giver: %v", line)
		}
		if line := loggedAs(t, logs[1], "this worker is active: it serves all that the ring gives it"); len(line) != 1 || line[0]["partitions"] != float64(n) {
			t.Errorf("log of the newcomer: %v", line)
		}

		// Residue that lasts is in the status of the new owner, and in the log of the former one.
		time.Sleep(35 * time.Second)
		if line := loggedAs(t, logs[0], "a key is held for long: holder is the token of the execution that holds it"); len(line) == 0 {
			t.Error("the former owner has logged no key that is held")
		}
		if s := b.Status(); len(s.Residue) != 1 || s.Residue[0].Worker != "w1" || s.Residue[0].Keys != n || s.Residue[0].OldestSeconds < 35 || s.Residue[0].OldestSeconds > 38 {
			t.Errorf("residue at the new owner: %+v", s.Residue)
		}
		close(release)
		wg.Wait()
		time.Sleep(2 * time.Second)
		for i, w := range []*site.Worker{a, b} {
			if s := w.Status(); len(s.Residue) > 0 || s.Moves[0].Running > 0 && i == 1 {
				t.Errorf("worker %d has residue yet: %+v", i, s)
			}
		}
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.AwaitServing(t, 64)
		time.Sleep(time.Second)
		if m := moved(t, a, "given", "leave"); m.Partitions != 64-n || m.Worker != "w2" {
			t.Errorf("the one that leaves gave %+v", m)
		}
		if m := moved(t, b, "taken", "leave"); m.Partitions != 64-n || m.Worker != "w1" {
			t.Errorf("taken from the one that leaves: %+v", m)
		}
	})
}

// Of a worker that has died it is said at once when its partitions are served again,
// and then how long that took.
func TestMovesOfACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, logs := site.New(t, 64), new(kit.Buffer)
		a, b := c.Start(), c.Start(logged(logs))
		together(t, a, b)
		n := a.Serving()
		died := time.Now()
		a.Close()
		a.Member.Vanish()
		synctest.Wait()
		line := loggedAs(t, logs, "a worker is gone: its partitions are served again once its session is over")
		if len(line) != 1 || line[0]["worker"] != "w1" || line[0]["partitions"] != float64(n) {
			t.Fatalf("log of the death: %v", line)
		}
		b.AwaitServing(t, 64)
		took := time.Since(died)
		if most := time.Duration(line[0]["in_at_most"].(float64)); took > most+time.Second || most > 11*time.Second {
			t.Errorf("it was said that it takes %v, it took %v", most, took)
		}
		time.Sleep(time.Second)
		m := moved(t, b, "taken", "death")
		if m.Partitions != n || m.Worker != "w1" || m.LongestSeconds < took.Seconds()-1 || m.LongestSeconds > took.Seconds()+1 {
			t.Errorf("taken: %+v, want %d partitions after %v", m, n, took)
		}
	})
}

// The other reasons for which partitions move.
func TestReasonsOfMoves(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, c *site.Site)
	}{
		{"drain", func(t *testing.T, c *site.Site) {
			a, b := c.Start(), c.Start()
			together(t, a, b)
			if err := a.LeaveRing(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.AwaitServing(t, 16)
			moved(t, a, "given", "drain")
			moved(t, b, "taken", "withdrawn")
		}},
		{"app", func(t *testing.T, c *site.Site) {
			a := c.StartReady()
			app := watchApp(a)
			b := c.Start()
			together(t, a, b)
			app(fmt.Errorf("%w: connection refused", worker.ErrAppDown))
			b.AwaitServing(t, 16)
			moved(t, a, "given", "app")
			moved(t, b, "taken", "withdrawn")
		}},
		{"session", func(t *testing.T, c *site.Site) {
			cut := &site.CutStore{Store: c.Store}
			a := c.StartReady(func(cfg *worker.Config) { cfg.Store = cut })
			cut.Set(true)
			kit.Eventually(t, "it has lost its session", func() bool { return a.Serving() == 0 })
			time.Sleep(time.Second)
			cut.Set(false)
			a.AwaitServing(t, 16)
			if m := moved(t, a, "lost", "session"); m.Partitions != 16 {
				t.Errorf("%+v", m)
			}
			moved(t, a, "taken", "session")
		}},
		{"restart", func(t *testing.T, c *site.Site) {
			a := c.StartReady()
			was := a.Incarnation()
			a.Close()
			a.Member.Vanish()
			b := c.StartNamed("w1", func(cfg *worker.Config) { cfg.Previous = map[string]time.Duration{was: 0} })
			b.AwaitServing(t, 16)
			moved(t, b, "taken", "restart")
		}},
		{"closed in order", func(t *testing.T, c *site.Site) {
			a := c.StartReady()
			if err := a.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.Close()
			a.Member.Vanish()
			b := c.Start()
			b.AwaitServing(t, 16)
			if m := moved(t, b, "taken", "death"); strings.Contains(m.Because, "died") {
				t.Errorf("of a worker that was closed in order it is said that %s", m.Because)
			}
		}},
		{"join of a third", func(t *testing.T, c *site.Site) {
			a, b := c.Start(), c.Start()
			together(t, a, b)
			d := c.Start()
			kit.Eventually(t, "the third one serves", func() bool { return d.Serving() > 0 && a.Serving()+b.Serving()+d.Serving() == 16 })
			time.Sleep(time.Second)
			for _, w := range []*site.Worker{a, b} {
				for _, m := range w.Status().Moves {
					if m.Direction == "given" && m.Worker == "w3" && m.Reason != "join" {
						t.Errorf("%+v", m)
					}
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.run(t, site.New(t, 16)) })
		})
	}
}

// Partitions that nobody has are not claimed for a TTL on a store that may have lost
// data: that is what is said of them.
func TestMovesAfterQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := ring.Settings{TTL: kit.TTL, Ring: ring.Config{Partitions: 16}}
		c := site.NewWith(t, settings)
		c.Store = memstore.New(memstore.Config{Settings: settings})
		a := c.Start(func(cfg *worker.Config) { cfg.NewCluster = false })
		a.AwaitServing(t, 16)
		if m := moved(t, a, "taken", "quarantine"); m.LongestSeconds < 9 || m.LongestSeconds > 12 {
			t.Errorf("%+v, want about the TTL of 10 s", m)
		}
	})
}

// However often partitions move, what is remembered is bounded.
func TestMovesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a, b := c.Start(), c.Start()
		together(t, a, b)
		for range 50 {
			if err := a.LeaveRing(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.AwaitServing(t, 16)
			if err := a.JoinRing(); err != nil {
				t.Fatal(err)
			}
			together(t, a, b)
		}
		moves := b.Status().Moves
		if len(moves) != 64 {
			t.Errorf("%d moves are remembered, want 64", len(moves))
		}
		if !slices.IsSortedFunc(moves, func(x, y status.Move) int { return y.Began.Compare(x.Began) }) {
			t.Error("the latest is not first")
		}
	})
}

// When a session is lost the log says for want of what: of the store's answers, or of
// time for this process.
func TestTrapWhyTheSessionWasLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		want string
		fail func(c *site.CutStore, stopped *time.Duration)
	}{
		{"store", "the store did not", func(c *site.CutStore, _ *time.Duration) { c.Set(true) }},
		{"process", "this process did not run for", func(_ *site.CutStore, stopped *time.Duration) { *stopped = 12 * time.Second }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, logs := site.New(t, 4), new(kit.Buffer)
				var mu sync.Mutex
				var stopped time.Duration // the worker's goroutine, the next time that it calls out
				cut := &site.CutStore{Store: c.Store}
				a := c.Start(logged(logs), func(cfg *worker.Config) {
					cfg.Store = cut
					cfg.OnPeers = func([]string) {
						mu.Lock()
						d := stopped
						stopped = 0
						mu.Unlock()
						time.Sleep(d)
					}
				})
				a.AwaitServing(t, 4)
				time.Sleep(3 * time.Second)
				mu.Lock()
				tt.fail(cut, &stopped)
				mu.Unlock()
				c.StartNamed("other", func(cfg *worker.Config) { cfg.Members = gossiping(t, c) })
				time.Sleep(15 * time.Second)
				line := loggedAs(t, logs, "session lost: starting a new incarnation")
				if len(line) != 1 || !strings.HasPrefix(fmt.Sprint(line[0]["cause"]), tt.want) {
					t.Errorf("log: %v, want a cause that begins with %q", line, tt.want)
				}
				if line := loggedAs(t, logs, "the session was not confirmed in time: running executions are cancelled"); len(line) != 1 {
					t.Errorf("log of the cancellation: %v", line)
				}
			})
		})
	}
}

// gossiping returns a membership of its own, with an address of gossip: who sees its
// session is told of that.
func gossiping(t *testing.T, c *site.Site) gateway.Members {
	t.Helper()
	return c.Hub.Join(ring.Member{Name: "gossiping", Role: ring.RoleWorker, State: ring.StateJoining, Addr: "g:80", Gossip: "g:7946"})
}
