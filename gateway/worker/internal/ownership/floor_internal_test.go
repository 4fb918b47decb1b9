package ownership

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/ring"
)

// noLocks opens tables without locks.
type noLocks struct {
	Locks
	keys *keyed.Keys
}

func (l noLocks) Open(e handoff.OpenTable) {
	first, limit := keyed.TokensOf(e.Epoch)
	l.keys.Parts[e.Partition].Table.Open(first, limit, nil)
}

// A table that has given all tokens of the epoch that it gets asks for a higher
// one by itself: nobody is granted a key who could.
func TestAnExhaustedTableAsks(t *testing.T) {
	const old = 9
	for name, effect := range map[string]handoff.Effect{
		"opened":   handoff.OpenTable{Epoch: 5, Blocked: []records.Residue{{Key: "k"}}},
		"advanced": handoff.Advance{Epoch: old},
	} {
		t.Run(name, func(t *testing.T) {
			k := keyed.New(keyed.Config{Settings: ring.Settings{Ring: ring.Config{Partitions: 1}}})
			s := &Shell{cfg: Config{Keys: k, Locks: noLocks{keys: k}}, wake: make(chan struct{}, 1)}
			k.Owner = s
			s.Moves.init(&s.cfg)
			p := &k.Parts[0]
			_, limit := keyed.TokensOf(old)
			p.Table.Open(limit-1, limit, nil)
			token, err := p.Table.TryLock("k")
			if err != nil {
				t.Fatal(err)
			}
			p.Table.Unlock("k", token)
			if name == "opened" {
				p.Table.Close()
			}
			s.perform(new(life), effect)
			asked := s.takeEvents()
			if len(asked) != 1 || asked[0].input != (handoff.SequenceLow{Epoch: old}) {
				t.Errorf("asks %v", asked)
			}
			s.perform(nil, handoff.Advance{Epoch: old + 1})
			if asked := s.takeEvents(); len(asked) > 0 {
				t.Errorf("asks %v though it has tokens", asked)
			}
		})
	}
}

// However fast epochs rise, the members are told once a second, and of the last
// one too; and not at all while another member tells of as high a one.
func TestEpochsAreAnnouncedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hub.New(ring.Settings{Ring: ring.Config{Partitions: 1}})
		self := h.Join(ring.Member{Name: "w1", Role: ring.RoleWorker, State: ring.StateJoining})
		s := &Shell{view: new(ring.View), cfg: Config{Members: self}}
		told, changes := int64(0), 0
		look := func() {
			if epoch := self.View().Members[0].Epoch; epoch != told {
				told, changes = epoch, changes+1
			}
		}
		for range 1000 {
			s.highest++
			s.tellEpoch(time.Now())
			look()
			time.Sleep(10 * time.Millisecond)
		}
		if changes < 9 || changes > 11 {
			t.Errorf("told %d times in 10 seconds", changes)
		}
		time.Sleep(s.tellEpoch(time.Now()))
		s.tellEpoch(time.Now())
		if look(); told != 1000 {
			t.Errorf("told of epoch %d, want 1000", told)
		}
		time.Sleep(time.Minute)
		s.highest, s.floor = 1001, 1001
		s.tellEpoch(time.Now())
		if look(); told != 1000 {
			t.Errorf("told of epoch %d, of which another member tells", told)
		}
	})
}
