package handoff

import (
	"github.com/keyway-go/keyway/internal/records"
	"slices"
	"testing"
	"time"
)

// opened returns the epochs of the tables that effects open.
func opened(effects []Effect) (epochs []int64) {
	for _, e := range effects {
		if o, ok := e.(OpenTable); ok {
			epochs = append(epochs, o.Epoch)
		}
	}
	return epochs
}

func TestFloor(t *testing.T) {
	for name, c := range map[string]struct {
		own, gossip int64
		record      records.Record // in the store before
		want        int64
	}{
		"of the process, nobody's partition":     {own: 100, want: 101},
		"of the process, moved here below it":    {own: 100, record: records.Record{Epoch: 50, Owner: "me"}, want: 101},
		"of the process, moved here at it":       {own: 100, record: records.Record{Epoch: 100, Owner: "me"}, want: 101},
		"of the process, moved here above it":    {own: 100, record: records.Record{Epoch: 150, Owner: "me"}, want: 150},
		"of gossip, nobody's partition":          {gossip: 100, want: 101},
		"of gossip, below that of the process":   {own: 100, gossip: 70, want: 101},
		"of gossip, a record of a former owner":  {gossip: 100, record: records.Record{Epoch: 3, Owner: "old"}, want: 101},
		"of gossip, moved here by a live worker": {gossip: 100, record: records.Record{Epoch: 50, Owner: "me"}, want: 50},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMachine(t, Config{Partitions: 1, NewCluster: true, Floor: c.own})
			s := newModelStore(1, m.cfg.TTL)
			s.generation = "g0"
			if c.record.Epoch > 0 {
				s.write(0, 0, c.record)
			}
			v := all(m, "me")
			v.Floor = c.gossip
			now := Instant{Mono: time.Second, Wall: time.Hour}
			epochs := opened(feed(m, s, now, v))
			for range 30 {
				now = now.Add(time.Second)
				epochs = append(epochs, opened(feed(m, s, now, Tick{}))...)
			}
			if !slices.Equal(epochs, []int64{c.want}) {
				t.Errorf("opened at %v, want %d", epochs, c.want)
			}
			if want := max(c.want, c.own, c.gossip); m.Highest() != want {
				t.Errorf("highest %d, want %d", m.Highest(), want)
			}
		})
	}
}

// TestEveryMoveSentCounts sees that a claim is above each of the moves of a
// partition whose outcome is unknown: any of them may have been made.
func TestEveryMoveSentCounts(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true, Floor: 100})
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	register(t, s, now, "other")
	both := View{Digest: 2, Workers: []Peer{{"me", 2}, {"other", 2}}, Owners: []int32{1}}
	feed(m, s, now, Changed{})
	moves := 0
	var highest int64
	step := func(in Input) (claims []records.Change) {
		queue := m.Step(now, in)
		for len(queue) > 0 {
			e := queue[0]
			queue = queue[1:]
			switch e := e.(type) {
			case CloseTable:
				queue = append(queue, m.Step(now, Closed{Partition: e.Partition})...)
			case Apply:
				for _, c := range e.Changes {
					if c.Op == records.OpMove {
						moves++
						highest = max(highest, c.Floor)
					} else {
						claims = append(claims, c)
					}
				}
				queue = append(queue, m.Step(now, Reply{ID: e.ID, Err: errUnknown})...)
			case Observe, Renew:
				queue = append(queue, m.Step(now, s.call(now.Mono, e))...)
			}
		}
		return claims
	}
	step(both)
	for range 5 {
		now = now.Add(m.cfg.Settle)
		_ = s.renew(now.Mono, Renew{Call{Generation: "g0", Incarnation: "other"}})
		step(Tick{})
	}
	if moves < 2 {
		t.Fatalf("%d moves", moves)
	}
	claims := step(all(m, "me"))
	for range 5 {
		now = now.Add(m.cfg.Settle)
		claims = append(claims, step(Tick{})...)
	}
	if len(claims) == 0 || claims[0].Floor <= highest || m.Highest() < claims[0].Floor {
		t.Errorf("claims %v after a move at %d", claims, highest)
	}
}

// TestSequenceBeyondTheEpoch moves on to an epoch above that of the tokens.
func TestSequenceBeyondTheEpoch(t *testing.T) {
	m, s, now := live(t, Config{Partitions: 1, NewCluster: true})
	feed(m, s, now, all(m, "me"))
	now = now.Add(time.Second)
	feed(m, s, now, Tick{})
	out := feed(m, s, now, SequenceLow{Partition: 0, Epoch: 9})
	if !slices.Contains(out, Effect(Advance{0, 10})) || m.Highest() != 10 {
		t.Errorf("%v, highest %d", out, m.Highest())
	}
	feed(m, s, now, SequenceLow{Partition: 7, Epoch: 90})
	if m.Highest() != 10 {
		t.Errorf("a partition that there is not raises the highest epoch to %d", m.Highest())
	}
}
