package keyed

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/wake"
)

const (
	slowSteps  = 4  // looks per Limits.SlowKey
	slowAtOnce = 16 // keys logged per look
)

// slowKeys logs keys that are held or waited for longer than Limits.SlowKey. It looks at all tables
// from time to time, only while keys are held. It stores no time for each key: tokens and places in
// queues rise, so a number no higher than one of an earlier look belongs to a caller that was there
// at that time. Keys.Sweep makes the looks.
type slowKeys struct {
	keys  *Keys
	on    atomic.Bool   // looks are made
	began chan struct{} // wakes Keys.Sweep when on becomes true

	mu    sync.Mutex // guards what follows
	looks []slowLook // the latest, the oldest first
	held  map[slowID]slowHold
}

// slowID is an execution that was found to hold its key for long, and slowHold which key
// and since when at least.
type slowID struct {
	partition int
	token     int64
}

type slowHold struct {
	key   string
	since time.Time
}

// slowLook is what a look found.
type slowLook struct {
	at    time.Time
	marks []keytable.Mark // of each partition
}

// beginLooks starts the looks. The holder of a key must call it unless they are on already.
func (s *slowKeys) beginLooks() {
	if s.on.CompareAndSwap(false, true) {
		wake.Up(s.began)
	}
}

// lookAtTables looks at all tables once. It reports false if the looks end.
func (s *slowKeys) lookAtTables(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var past slowLook
	for len(s.looks) > 0 && now.Sub(s.looks[0].at) >= s.keys.cfg.SlowKey {
		past, s.looks = s.looks[0], s.looks[1:]
	}
	maps.DeleteFunc(s.held, func(id slowID, h slowHold) bool { // those that hold their keys no more
		state := s.keys.Parts[id.partition].Table.Inspect(h.key)
		return state.Token != id.token && state.Former != id.token
	})
	next, busy := s.compareLocked(past, now)
	if busy {
		s.looks = append(s.looks, next)
		return true
	}
	// A key that is asked for from now on begins the looks again. A key that was asked for before
	// found them on, so it is held now and Running counts it.
	s.looks = nil
	s.on.Store(false)
	return s.keys.Running() > 0 && s.on.CompareAndSwap(false, true)
}

// compareLocked logs what has been held or waited for since a past look, and returns
// what there is now.
func (s *slowKeys) compareLocked(past slowLook, now time.Time) (next slowLook, busy bool) {
	k := s.keys
	next = slowLook{now, make([]keytable.Mark, len(k.Parts))}
	left := slowAtOnce
	for i := range k.Parts {
		var since keytable.Mark
		if past.marks != nil {
			since = past.marks[i]
		}
		found, mark, some := k.Parts[i].Table.Slow(since, left)
		next.marks[i] = mark
		busy = busy || some
		left -= len(found)
		for _, f := range found {
			args := []any{"key", f.Key, "partition", i, "for", now.Sub(past.at), "waiting", f.Waiters, "holder", f.Token}
			switch {
			case f.Held:
				if s.held == nil {
					s.held = make(map[slowID]slowHold)
				}
				s.held[slowID{i, f.Token}] = slowHold{f.Key, past.at}
				if f.Key != placement.Lock {
					k.cfg.Log.Warn("a key is held for long: holder is the token of the execution that holds it", args...)
				}
			case f.Token == 0:
				k.cfg.Log.Warn("callers wait long for a key: an execution at a former owner holds it", args...)
			default:
				k.cfg.Log.Warn("callers wait long for a key: many wait for it, or its executions are long", args...)
			}
		}
	}
	return next, busy
}

// HeldFor returns for how long, at least, an execution has held its key.
func (k *Keys) HeldFor(p *Partition, token int64, now time.Time) (d time.Duration) {
	s := &k.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.held[slowID{p.Number, token}]; ok {
		return now.Sub(h.since)
	}
	for _, look := range s.looks {
		if look.marks[p.Number].Minted(token) {
			return now.Sub(look.at)
		}
	}
	return 0
}
