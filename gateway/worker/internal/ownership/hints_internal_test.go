package ownership

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/ring"
)

// Of many workers each waits for a while of its own before it follows a hint, unless it waits for
// what the hint may tell.
func TestHintsOfACrowdSpread(t *testing.T) {
	h := hub.New(ring.Settings{Ring: ring.Config{Partitions: 512}})
	var self *hub.Handle
	join := func(from, to int) {
		for i := from; i <= to; i++ {
			name := fmt.Sprint("w", i)
			member := h.Join(ring.Member{Name: name, Incarnation: name, Role: ring.RoleWorker, State: ring.StateActive, Addr: name + ":80"})
			if i == 1 {
				self = member
			}
		}
	}
	join(1, 8)
	k := keyed.New(keyed.Config{Settings: self.Settings()})
	s := &Shell{cfg: Config{Name: "w1", Members: self, Keys: k}, current: &life{incarnation: "w1"}, view: self.View()}
	s.Moves.init(&s.cfg)
	longest := func() (d time.Duration) {
		s.view = self.View()
		for range 1000 {
			d = max(d, s.hintDelay())
		}
		return d
	}
	serve := func(all bool) {
		for i := range k.Parts {
			k.Parts[i].Open.Store(all)
		}
	}
	serve(true)
	if d := longest(); d < 6*time.Millisecond || d > 8*time.Millisecond {
		t.Errorf("each of 8 workers waits for up to %v", d)
	}
	join(9, 40)
	if d := longest(); d < 30*time.Millisecond || d > 40*time.Millisecond {
		t.Errorf("each of 40 workers waits for up to %v", d)
	}
	s.sessions = make([]records.SessionState, 100)
	if d := longest(); d < 75*time.Millisecond || d > 100*time.Millisecond {
		t.Errorf("each of 40 workers and 60 that have not joined waits for up to %v", d)
	}
	s.Moves.inherited[3] = []lingering{{Residue: records.Residue{Key: "k"}}}
	if d := longest(); d > 0 {
		t.Errorf("one that has residue waits for up to %v", d)
	}
	delete(s.Moves.inherited, 3)
	serve(false)
	if d := longest(); d == 0 {
		t.Error("one that waits for partitions which nobody has does not wait")
	}
	for i := range k.Parts {
		k.Parts[i].Record.Store(&records.Record{Owner: "w2", Epoch: 1})
	}
	if d := longest(); d > 0 {
		t.Errorf("one that waits for partitions of another worker waits for up to %v", d)
	}
}
