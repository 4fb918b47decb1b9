package ownership

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/ring"
)

// One of a crowd joins the ring once the others have stayed the same for a while, or at the
// latest after six times that, and at once when another has joined it. One of a few joins at once.
func TestCrowdsJoinTogether(t *testing.T) {
	h := hub.New(ring.Settings{})
	var self *hub.Handle
	n := 0
	more := func(upTo int) {
		for ; n < upTo; n++ {
			name := fmt.Sprint("w", n)
			member := h.Join(ring.Member{Name: name, Incarnation: name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: name + ":80"})
			if n == 0 {
				self = member
			}
		}
	}
	ready := func() *Shell {
		k := keyed.New(keyed.Config{Settings: self.Settings()})
		s := &Shell{cfg: Config{Name: "w0", Members: self, Keys: k, Logger: slog.New(slog.DiscardHandler)}, current: &life{incarnation: "w0", confirmed: true, told: true}}
		s.Moves.init(&s.cfg)
		s.Moves.begin("w0")
		s.passView()
		return s
	}
	more(8)
	if s := ready(); s.join(time.Now()) != time.Hour || !s.current.announced {
		t.Error("one of eight waits")
	}
	more(9)
	s := ready()
	now := s.changed
	if wait := s.join(now.Add(100 * time.Millisecond)); wait != 400*time.Millisecond || s.current.announced {
		t.Errorf("100 ms after the ninth had come: waits for %v more", wait)
	}
	more(10)
	s.passView()
	if wait := s.join(s.changed); wait != 500*time.Millisecond || s.current.announced {
		t.Errorf("when the tenth has come: waits for %v more", wait)
	}
	if s.join(s.changed.Add(500 * time.Millisecond)); !s.current.announced {
		t.Error("not on the ring though nobody came any more")
	}

	s = ready()
	if s.join(s.changed); s.current.announced {
		t.Error("on the ring though the others have just come")
	}
	h.Join(ring.Member{Name: "first", Incarnation: "first", Role: ring.RoleWorker, State: ring.StateActive, Addr: "first:80"})
	s.passView()
	if s.join(time.Now()); !s.current.announced {
		t.Error("not on the ring though another has joined it")
	}

	s = ready()
	first := s.changed
	for at := first; at.Before(first.Add(3 * time.Second)); at = at.Add(400 * time.Millisecond) {
		s.changed = at
		if s.join(at); s.current.announced {
			t.Fatalf("on the ring after %v though others come", at.Sub(first))
		}
	}
	if s.join(first.Add(3 * time.Second)); !s.current.announced {
		t.Error("not on the ring after 3 s")
	}
}
