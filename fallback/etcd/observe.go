package etcd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// view is the latest state of meta and of the sessions that a handle has seen; Store.mu guards it.
type view struct {
	meta     meta
	changed  int64 // revision of changed/sessions
	moves    int64 // how often changed/partitions was written
	alive    int64 // number of sessions that live
	version  int64 // since which they are as they are
	sessions []records.SessionState
	gone     []records.Stamp
	released []string
	notes    records.Notes

	present    map[string]*mvccpb.KeyValue // of alive/ and released/
	partitions map[string]*mvccpb.KeyValue // and the key complete, as this handle has seen them last; shared by all views of a generation
}

// maxKnown bounds a partition, in bytes, whose value is kept in a view.
const maxKnown = 4096

// learn keeps partitions that etcd has shown in a generation, and how often partitions had changed. It reports whether
// all partitions are known, but the key complete is not.
func (s *Store) learn(generation string, moves int64, partitions ...*mvccpb.KeyValue) (all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.partitions == nil || s.view.meta.generation != generation {
		return false
	}
	s.view.moves = max(s.view.moves, moves)
	for _, kv := range partitions {
		switch key := string(kv.Key); {
		case len(kv.Value) > maxKnown:
			s.view.partitions[key] = nil // it has a record
		case s.view.partitions[key].GetModRevision() < kv.ModRevision:
			s.view.partitions[key] = kv
		}
	}
	return len(s.view.partitions) == s.handle.Given.Ring.Partitions && s.view.partitions[s.key("complete")] == nil
}

// Observe returns the sessions, the tombstones, and the partitions that changed after a version;
// all of them if that is 0 or of an earlier generation. It returns the locks of the incarnation's
// own partitions only.
//
// Observe sends one request if nothing has changed. Otherwise it sends a second one, which reads the changed
// partitions, the sessions, or both. When a session has run out, fewer are alive, and Observe reads all sessions.
func (s *Store) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	snapshot, err := s.observe(ctx, gen, incarnation, since, suspects)
	return snapshot, s.handle.Failed("observe", err)
}

func (s *Store) observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (snapshot records.Snapshot, err error) {
	s.mu.Lock()
	v := s.view
	s.mu.Unlock()
	sessions, partitions, complete := false, false, false
	for again := true; again && err == nil; {
		reads := s.look(since, sessions, partitions, len(suspects) > 0)
		err = s.transact(ctx, s.client, gen, nil, reads, func(st *step) (err error) {
			if v.meta.revision != st.meta.revision {
				v = view{meta: st.meta}
			}
			if again = since < v.meta.revision && since > 0 || since > st.Header.Revision; again {
				since = 0
				return nil
			}
			newSessions := v.changed != st.revision(s.key("changed/sessions")) || v.alive != st.lists[s.key("alive/")].GetCount()
			changed := st.read[s.key("changed/partitions")]
			newPartitions := changed.GetModRevision() > since
			if changed.GetVersion() < v.moves {
				return errLost
			}
			if again = newSessions && !sessions || newPartitions && !partitions; again {
				sessions, partitions = sessions || newSessions, partitions || newPartitions
				return nil
			}
			if sessions {
				if err := s.see(&v, since, st); err != nil {
					return err
				}
			}
			known := st.lists[s.key("partition/")].GetKvs()
			if kv := st.read[s.key("complete")]; kv != nil {
				known = append(slices.Clip(known), kv)
			}
			complete = s.learn(v.meta.generation, changed.GetVersion(), known...)
			snapshot, err = s.snapshot(v, st, incarnation, since, suspects)
			return err
		})
	}
	if complete && err == nil { // if what follows fails, the next look does it
		_, _ = s.commit(ctx, s.client, []clientv3.Cmp{unchanged(s.key("meta"), v.meta.revision)}, []clientv3.Op{clientv3.OpPut(s.key("complete"), "")}, nil)
	}
	return snapshot, err
}

// see makes a view what etcd shows of the sessions, and keeps it for the next look. The caller of Observe has
// known them since a version, perhaps by another view.
func (s *Store) see(v *view, since int64, st *step) error {
	changed, alive, known := st.revision(s.key("changed/sessions")), st.lists[s.key("alive/")].GetKvs(), *v
	*v = view{meta: known.meta, changed: changed, moves: known.moves, alive: int64(len(alive)), version: max(changed, known.version), partitions: known.partitions}
	if v.partitions == nil {
		v.partitions = make(map[string]*mvccpb.KeyValue)
	}
	v.present = make(map[string]*mvccpb.KeyValue)
	for _, kv := range slices.Concat(alive, st.lists[s.key("released/")].GetKvs()) {
		v.present[string(kv.Key)] = kv
	}
	if max(known.version, since) >= changed { // looked for since one has run out
		v.version = st.Header.Revision
	}
	for _, kv := range st.lists[s.key("session/")].GetKvs() {
		incarnation := s.name("session/", kv.Key)
		if v.present[s.key("alive", incarnation)] == nil {
			v.gone = append(v.gone, records.Stamp{Incarnation: incarnation, Beat: kv.ModRevision})
			continue
		}
		state, err := stores.ReadSession(incarnation, string(kv.Value))
		if err != nil {
			return fmt.Errorf("session %q: %w", incarnation, err)
		}
		v.sessions = append(v.sessions, state)
	}
	for _, kv := range st.lists[s.key("gone/")].GetKvs() {
		beat, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", kv.Key, stores.ErrFields)
		}
		v.gone = append(v.gone, records.Stamp{Incarnation: s.name("gone/", kv.Key), Beat: beat})
	}
	for _, kv := range st.lists[s.key("released/")].GetKvs() {
		v.released = append(v.released, s.name("released/", kv.Key))
	}
	for n := range v.notes {
		v.notes[n] = string(st.read[s.key(records.Note(n).String())].GetValue())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.meta.revision != v.meta.revision || s.view.version < v.version {
		s.view = *v
	}
	return nil
}

func (s *Store) snapshot(v view, st *step, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	snapshot := records.Snapshot{
		Generation: v.meta.generation, Now: time.Duration(st.now.UnixNano()), Beat: st.Header.Revision,
		Version:  max(v.version, since, st.revision(s.key("changed/partitions"))),
		Sessions: v.sessions, Gone: v.gone, Released: v.released, Notes: v.notes,
	}
	if kv := st.read[s.key("quarantine")]; kv != nil {
		end, _ := strconv.ParseInt(string(kv.Value), 10, 64)
		longest := max(v.meta.ttl, s.handle.Given.TTL)
		snapshot.Quarantine = min(max(time.Until(time.UnixMilli(end)), time.Millisecond), longest) // of another member's clock
	}
	for _, kv := range st.lists[s.key("partition/")].GetKvs() {
		number, _ := strconv.Atoi(s.name("partition/", kv.Key))
		p, err := decodePartition(number, v.meta.generation, kv)
		if err != nil {
			return snapshot, fmt.Errorf("%s: %w", kv.Key, err)
		}
		snapshot.Partitions = append(snapshot.Partitions, p.Told(incarnation))
	}
	for _, kv := range st.lists[s.key("session/")].GetKvs() {
		name := s.name("session/", kv.Key)
		if slices.Contains(suspects, name) && v.present[s.key("alive", name)] != nil {
			snapshot.Stamps = append(snapshot.Stamps, records.Stamp{Incarnation: name, Beat: kv.ModRevision})
		}
	}
	return snapshot, nil
}

// look returns what Observe reads: unless sessions or partitions is set, only whether they have changed. It contains no
// nested transaction, because etcd writes each of those to its log.
func (s *Store) look(since int64, sessions, partitions, stamps bool) []clientv3.Op {
	get, prefix, keys := clientv3.OpGet, clientv3.WithPrefix(), clientv3.WithKeysOnly()
	reads := []clientv3.Op{get(s.key("quarantine")), get(s.key("complete")), get(s.key("changed/sessions")), get(s.key("changed/partitions"))}
	switch {
	case sessions:
		reads = append(reads, get(s.key("alive/"), prefix), get(s.key("session/"), prefix), get(s.key("gone/"), prefix), get(s.key("released/"), prefix, keys),
			get(s.key(records.Placements.String())), get(s.key(records.Suspects.String())))
	case stamps:
		reads = append(reads, get(s.key("alive/"), prefix, clientv3.WithCountOnly()), get(s.key("session/"), prefix, keys))
	default:
		reads = append(reads, get(s.key("alive/"), prefix, clientv3.WithCountOnly()))
	}
	if partitions {
		reads = append(reads, get(s.key("partition/"), prefix, clientv3.WithMinModRev(since+1)))
	}
	return reads
}
