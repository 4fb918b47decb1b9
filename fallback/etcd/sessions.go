package etcd

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// Generation returns the store's generation. If the store has none, it begins one with a
// quarantine. Afterwards Settings knows the store's identity, which outlives generations: a store
// that has lost it gets it back from the first handle that knows it. Without begin, an empty store stays as it is, as
// [store.Store.Generation] says.
//
// The error wraps ring.ErrSettings if the sessions in the store have other settings. When none of
// them lives, the settings can be replaced, except the number of partitions.
func (s *Store) Generation(ctx context.Context, begin bool) (string, error) {
	var gen, known string
	if !begin && s.Settings().Store == 0 {
		known = existing
	}
	var waits, owned bool
	reads := append(s.whoLives(), clientv3.OpGet(s.key("partition/"), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	err := s.transact(ctx, s.client, known, nil, reads, func(st *step) error {
		gen, waits, owned = st.meta.generation, st.has(s.key("quarantine")), st.lists[s.key("partition/")].GetCount() > 0
		return s.differs(st)
	})
	if err != nil {
		return "", s.handle.Failed("generation", err)
	}
	s.handle.NewCluster.Store(false)
	if said := s.said.Swap(&gen); waits && (said == nil || *said != gen) {
		s.handle.Logger.Warn(stores.WhyWait(owned), "at_most", s.handle.Given.TTL)
	}
	return gen, nil
}

// whoLives reads what differs looks at.
func (s *Store) whoLives() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(s.key("quarantine")),
		clientv3.OpGet(s.key("alive/"), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	}
}

// differs returns ring.ErrSettings if our settings are others than those of the sessions that live, or may
// live on without the store's knowing. The number of partitions stays: records and tokens go by it.
func (s *Store) differs(st *step) error {
	ours := stores.SettingsText(s.handle.Given)
	partitions := func(settings string) string {
		first, _, _ := strings.Cut(settings, " ")
		return first
	}
	if ours == st.meta.settings || !st.has(s.key("quarantine")) && st.lists[s.key("alive/")].GetCount() == 0 && partitions(ours) == partitions(st.meta.settings) {
		return nil
	}
	return stores.Differ(s.handle.Given, st.meta.settings)
}

// Register creates the session of h.Incarnation, and then re-asserts each holding, as [store.Store]
// does. Others may see the session before its holdings, but cannot take an accepted one.
// ErrSessionGone means that this incarnation had a session in this generation, or released one.
func (s *Store) Register(ctx context.Context, gen string, h records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	if err := s.register(ctx, gen, h, ttl); err != nil {
		return nil, s.handle.Failed("register", err)
	}
	var jobs []job
	for _, hold := range holdings {
		jobs = append(jobs, job{partition: hold.Partition, do: func(_ *step, p *partition) { p.Hold(h.Incarnation, hold, time.Now()) }})
	}
	partitions, err := s.change(ctx, gen, h.Incarnation, jobs)
	return told(partitions, h.Incarnation), s.handle.Failed("register", err)
}

func (s *Store) register(ctx context.Context, gen string, h records.Session, ttl time.Duration) error {
	if h.Incarnation == "" {
		return records.ErrSessionGone
	}
	lease, startLease := s.granting(ctx, ttl), s.granting(ctx, 30*s.handle.Given.TTL)
	alive, details, start := s.key("alive", h.Incarnation), s.key("session", h.Incarnation), s.key("start", h.Name)
	gone, released := s.key("gone", h.Incarnation), s.key("released", h.Incarnation)
	reads := append(s.whoLives(), clientv3.OpGet(alive), clientv3.OpGet(details), clientv3.OpGet(gone), clientv3.OpGet(released), clientv3.OpGet(start),
		clientv3.OpGet(s.key("session/"), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	return s.transact(ctx, s.client, gen, nil, reads, func(st *step) error {
		if err := s.differs(st); err != nil {
			return err
		}
		if ours := stores.SettingsText(s.handle.Given); ours != st.meta.settings {
			if err := s.beginGeneration(ctx, st.meta, ours); err != nil {
				return err
			}
			return records.ErrGeneration
		}
		if st.has(released) || st.has(gone) || st.has(details) && !st.has(alive) {
			return records.ErrSessionGone
		}
		id, err := lease()
		if err != nil {
			return err
		}
		joins := st.now
		if h.Name != "" {
			if joins, err = s.start(st, start, h.Incarnation, startLease); err != nil {
				return err
			}
		}
		st.put(alive, "", clientv3.WithLease(id))
		st.put(details, stores.Join(h.Name, h.Addr, h.Gossip, number(joins.UnixMilli())))
		st.put(s.key("changed/sessions"), "")
		return s.sweep(ctx, st)
	})
}

// start records that a name has a new incarnation, and returns when that may join the ring. If
// incarnations of a name die one after the other, each joins later, from the third on. This ends
// when one has left in order or lived for long.
func (s *Store) start(st *step, key, incarnation string, granted func() (clientv3.LeaseID, error)) (time.Time, error) {
	deaths, at := int64(0), st.now
	if last := st.read[key]; last != nil {
		f := stores.Read(string(last.Value))
		who, died, began := f.Text(), f.Number(), f.Number()
		if f.Err != nil {
			return at, f.Err
		}
		if deaths = died + 1; who == incarnation {
			deaths, at = died, time.UnixMilli(began)
		}
	}
	lease, err := granted()
	if err != nil {
		return at, err
	}
	st.put(key, stores.Join(incarnation, number(deaths), number(at.UnixMilli())), clientv3.WithLease(lease))
	if deaths >= 2 {
		at = at.Add(time.Duration(min(1<<min(deaths-2, 4), 10)) * s.handle.Given.TTL)
	}
	return at, nil
}

// maxSwept bounds how many sessions one registration sweeps.
const maxSwept = 40

// sweep turns sessions that have run out into tombstones, which go after an hour.
func (s *Store) sweep(ctx context.Context, st *step) error {
	alive := map[string]bool{}
	for _, kv := range st.lists[s.key("alive/")].GetKvs() {
		alive[s.name("alive/", kv.Key)] = true
	}
	var lease clientv3.LeaseID
	swept := 0
	for _, kv := range st.lists[s.key("session/")].GetKvs() {
		incarnation := s.name("session/", kv.Key)
		if alive[incarnation] || swept == maxSwept {
			continue
		}
		if swept++; lease == 0 {
			var err error
			if lease, err = s.grant(ctx, hour); err != nil {
				return err
			}
		}
		st.delete(s.key("session", incarnation))
		st.put(s.key("gone", incarnation), number(kv.ModRevision), clientv3.WithLease(lease))
	}
	return nil
}

// name returns what follows a prefix in a key.
func (s *Store) name(prefix string, key []byte) string {
	return strings.TrimPrefix(string(key), s.key(prefix))
}

// Renew extends a session that exists, by the TTL that it was registered for. It returns the zero Snapshot.
// ErrSessionGone: there is no session. A renewal takes two requests once Observe has shown the session, and three before.
func (s *Store) Renew(ctx context.Context, gen, incarnation string, _ time.Duration) (records.Snapshot, error) {
	alive, stamp := s.key("alive", incarnation), clientv3.OpPut(s.key("session", incarnation), "", clientv3.WithIgnoreValue())
	var lease clientv3.LeaseID
	guess := s.guess(gen, map[string]bool{alive: true})
	err := s.transact(ctx, s.renewal, gen, guess, []clientv3.Op{clientv3.OpGet(alive)}, func(st *step) error {
		if !st.has(alive) {
			return records.ErrSessionGone
		}
		lease = clientv3.LeaseID(st.read[alive].GetLease())
		st.ops = append(st.ops, stamp)
		return nil
	})
	if err == nil {
		err = s.prolong(ctx, s.renewal, lease)
	}
	if isGone(err) {
		err = records.ErrSessionGone
	}
	return records.Snapshot{}, s.handle.Failed("renew", err)
}

// Replace replaces the text of a note, if it is from. It returns what it is then.
func (s *Store) Replace(ctx context.Context, note records.Note, from, to string) (now string, err error) {
	key := s.key(note.String())
	err = s.transact(ctx, s.client, "", nil, []clientv3.Op{clientv3.OpGet(key)}, func(st *step) error {
		now = string(st.read[key].GetValue())
		if now == from && from != to {
			now = to
			st.put(key, to)
			st.put(s.key("changed/sessions"), "")
		}
		return nil
	})
	return now, s.handle.Failed("replace", err)
}

// Release ends a session for good and leaves a tombstone for an hour, also where there is no session.
func (s *Store) Release(ctx context.Context, incarnation string) error {
	if incarnation == "" {
		return nil
	}
	alive, details, released := s.key("alive", incarnation), s.key("session", incarnation), s.key("released", incarnation)
	lease := s.granting(ctx, hour)
	name := s.nameOf(incarnation)
	for again := true; again; {
		start := s.key("start", name)
		reads := []clientv3.Op{clientv3.OpGet(details), clientv3.OpGet(alive), clientv3.OpGet(released), clientv3.OpGet(start)}
		err := s.transact(ctx, s.client, "", nil, reads, func(st *step) error {
			known := name
			if kv := st.read[details]; kv != nil {
				name = stores.Read(string(kv.Value)).Text()
			}
			if again = name != known; again || st.has(released) && !st.has(alive) {
				return nil
			}
			id, err := lease()
			if err != nil {
				return err
			}
			if last := st.read[start]; last != nil && st.has(alive) && stores.Read(string(last.Value)).Text() == incarnation {
				st.delete(start)
			}
			st.delete(alive)
			st.delete(details)
			st.delete(s.key("gone", incarnation))
			st.put(released, "", clientv3.WithLease(id))
			st.put(s.key("changed/sessions"), "")
			return nil
		})
		if err != nil {
			return s.handle.Failed("release", err)
		}
	}
	return nil
}

// nameOf returns the name of an incarnation whose session the handle has seen, otherwise "".
func (s *Store) nameOf(incarnation string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.view.sessions {
		if session.Incarnation == incarnation {
			return session.Name
		}
	}
	return ""
}
