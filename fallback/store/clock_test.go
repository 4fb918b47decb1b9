package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/storetest"
	"github.com/keyway-go/keyway/ring"
)

// sessionTTL is the default.
var sessionTTL = ring.Settings{}.WithDefaults().TTL

// clocked is a store whose clock the test sets; the embedded one runs the
// scripts of the real one.
type clocked struct {
	*testing.T
	store   storetest.Store
	advance func(d time.Duration) // may be negative
	restart func()
	gen     string
}

func onEachClock(t *testing.T, test func(c *clocked)) {
	t.Run("memory", func(t *testing.T) {
		clock := newFakeClock()
		m := memstore.New(memstore.Config{NewCluster: true, Clock: clock.now})
		c := &clocked{T: t, store: m, advance: clock.advance, restart: m.Restart}
		c.refresh()
		test(c)
	})
	t.Run("scripts", func(t *testing.T) {
		e := startEmbedded(t)
		clock := newFakeClock()
		e.server.SetTime(clock.now())
		e.server.Server().SetPreHook(answer(newRunID(), nil))
		c := &clocked{T: t, store: openStore(t, e.URL(), Config{NewCluster: true})}
		c.advance = func(d time.Duration) {
			clock.advance(d)
			e.server.SetTime(clock.now())
		}
		c.restart = func() { e.server.Server().SetPreHook(answer(newRunID(), nil)) }
		c.refresh()
		test(c)
	})
}

func (c *clocked) refresh() {
	c.Helper()
	var err error
	if c.gen, err = c.store.Generation(c.Context(), true); err != nil {
		c.Fatal(err)
	}
}

func (c *clocked) register(inc string) {
	c.Helper()
	_, err := c.store.Register(c.Context(), c.gen, records.Session{Incarnation: inc}, sessionTTL, nil)
	if err != nil {
		c.Fatal(err)
	}
}

func (c *clocked) observe() records.Snapshot {
	c.Helper()
	s, err := c.store.Observe(c.Context(), c.gen, "", 0, nil)
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// A clock that is set back by an hour must neither bring a session back nor
// stretch a quarantine.
func TestTrapClockSetBack(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		c.restart()
		c.refresh()
		c.advance(-time.Hour)
		if left := c.observe().Quarantine; left <= 0 || left > sessionTTL {
			c.Errorf("the quarantine has %v left, want up to one TTL", left)
		}
		c.register("a")
		c.advance(sessionTTL)
		if s := c.observe(); len(s.Sessions) > 0 || s.Quarantine > 0 {
			c.Errorf("after a TTL got %+v, want neither session nor quarantine", s)
		}
		c.advance(-sessionTTL)
		if err := renew(c.Context(), c.store, c.gen, "a", sessionTTL); !errors.Is(err, records.ErrSessionGone) {
			c.Errorf("after the clock was set back Renew gave %v, want ErrSessionGone", err)
		}
	})
}

// A session of before the clock was set back ends a TTL later at the latest,
// and a tombstone an hour later.
func TestTrapClockSetBackAfterRegistering(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		c.register("a")
		c.register("b")
		c.register("c")
		if err := c.store.Release(c.Context(), "c"); err != nil {
			c.Fatal(err)
		}
		c.advance(sessionTTL / 2)
		if err := renew(c.Context(), c.store, c.gen, "b", sessionTTL); err != nil {
			c.Fatal(err)
		}
		c.advance(-time.Hour)
		if n := len(c.observe().Sessions); n != 2 {
			c.Errorf("%d sessions after the clock was set back, want 2", n)
		}
		for range 3 { // again and again
			c.advance(-time.Minute)
			c.observe()
		}
		c.advance(sessionTTL / 2)
		if s := c.observe().Sessions; len(s) != 1 || s[0].Incarnation != "b" {
			c.Errorf("got sessions %v half a TTL later, want b alone", s)
		}
		c.advance(sessionTTL / 2)
		if s := c.observe().Sessions; len(s) != 0 {
			c.Errorf("got sessions %v a TTL later", s)
		}
		c.advance(memstore.Tombstone)
		if got := c.observe().Released; len(got) > 0 {
			c.Errorf("got tombstones %q after an hour", got)
		}
	})
}

// A session ends when its TTL is over, not before, and a renewal counts from
// when it came.
func TestSessionTTL(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		c.register("a")
		for range 3 {
			c.advance(sessionTTL - time.Millisecond)
			if err := renew(c.Context(), c.store, c.gen, "a", sessionTTL); err != nil {
				c.Fatal(err)
			}
		}
		c.advance(sessionTTL - time.Millisecond)
		if n := len(c.observe().Sessions); n != 1 {
			c.Errorf("%d sessions just before the end of the TTL, want 1", n)
		}
		c.advance(time.Millisecond)
		if n := len(c.observe().Sessions); n != 0 {
			c.Errorf("%d sessions at the end of the TTL, want 0", n)
		}
	})
}

// A session that has run out is not renewed, even if no other call has noticed its end.
func TestTrapRenewalNoticesTheEndItself(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		c.register("a")
		c.advance(sessionTTL)
		if _, err := c.store.Renew(c.Context(), c.gen, "a", sessionTTL); !errors.Is(err, records.ErrSessionGone) {
			c.Errorf("got %v, want ErrSessionGone", err)
		}
	})
}

// A name that has lived for long begins anew.
func TestDeathsAreForgotten(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		wait := func(inc string) time.Duration {
			c.Helper()
			_, err := c.store.Register(c.Context(), c.gen, records.Session{Incarnation: inc, Name: "n"}, sessionTTL, nil)
			if err != nil {
				c.Fatal(err)
			}
			snapshot := c.observe()
			for _, s := range snapshot.Sessions {
				if s.Incarnation == inc {
					return max(0, s.Joins-snapshot.Now)
				}
			}
			c.Fatalf("%s has no session", inc)
			return 0
		}
		for i, want := range []time.Duration{0, 0, sessionTTL, 2 * sessionTTL} {
			if got := wait(fmt.Sprint("a", i)); got != want {
				c.Errorf("start %d is to wait for %v, want %v", i, got, want)
			}
			c.advance(30*sessionTTL - time.Millisecond)
		}
		c.advance(time.Millisecond)
		if got := wait("b"); got != 0 {
			c.Errorf("after a long life the next is to wait for %v", got)
		}
	})
}

func TestTombstonesLastAnHour(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		if err := c.store.Release(c.Context(), "gone"); err != nil {
			c.Fatal(err)
		}
		c.advance(memstore.Tombstone - time.Second)
		c.register("a")
		if got := c.observe().Released; !slices.Equal(got, []string{"gone"}) {
			c.Errorf("got tombstones %q within the hour, want gone", got)
		}
		c.advance(time.Second)
		if got := c.observe().Released; len(got) > 0 {
			c.Errorf("got tombstones %q after an hour", got)
		}
		c.register("gone") // forgotten
	})
}

// Epochs follow the store's clock in Unix seconds, never backwards.
func TestEpochsFollowTheClock(t *testing.T) {
	onEachClock(t, func(c *clocked) {
		c.register("a")
		var record records.Record
		for _, step := range []time.Duration{0, 0, 5 * time.Second, -time.Hour} {
			c.advance(step)
			op := records.OpAdvance
			if record.Owner == "" {
				op = records.OpClaim
			}
			was := record
			states, err := c.store.Apply(c.Context(), c.gen, "a", []records.Change{{Op: op, Partition: 1, From: record}})
			if err != nil {
				c.Fatal(err)
			}
			record = states[0].Record
			if record.Epoch <= was.Epoch {
				c.Errorf("the epoch went from %d to %d", was.Epoch, record.Epoch)
			}
		}
		if want := int64(1_800_000_006); record.Epoch != want {
			c.Errorf("got epoch %d in the end, want %d", record.Epoch, want)
		}
	})
}
