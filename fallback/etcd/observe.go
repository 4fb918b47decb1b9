package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// view is the latest state of meta and of the sessions that a handle has seen; Store.mu guards it.
type view struct {
	meta     meta
	changed  int64 // revision of changed/sessions
	alive    int64 // how many of them live
	version  int64 // since which they are as they are
	sessions []records.SessionState
	gone     []records.Stamp
	released []string
	notes    records.Notes
}

// Observe returns the sessions, the tombstones, and the partitions that changed after a version;
// all of them if that is 0 or of an earlier generation. It returns the locks of the incarnation's
// own partitions only.
//
// Observe sends one request. etcd reads sessions and partitions for it only if they have changed. When a
// session has run out, fewer are alive, and Observe asks again for all.
func (s *Store) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	snapshot, err := s.observe(ctx, gen, incarnation, since, suspects)
	return snapshot, s.handle.Failed("observe", err)
}

func (s *Store) observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	s.mu.Lock()
	v := s.view
	s.mu.Unlock()
	for {
		if gen != "" && v.meta.generation != gen {
			v = view{}
		}
		if since < v.meta.revision {
			since = 0
		}
		r, err := s.readChanges(ctx, v, since, len(suspects) > 0)
		if err != nil {
			return records.Snapshot{}, err
		}
		if !r.Succeeded {
			m, err := s.enter(ctx, r, only(r.Responses[0]), gen)
			if err != nil && !errors.Is(err, errBegun) {
				return records.Snapshot{}, err
			}
			v = view{meta: m}
			continue
		}
		switch sessions := r.Responses[1].GetResponseTxn(); {
		case r.behind || r.Header.ClusterId != v.meta.cluster:
			v = view{} // the next look begins a generation
			continue
		case since > r.Header.Revision:
			since = 0
			continue
		case !sessions.Succeeded:
			if err := s.see(&v, r.Header.Revision, sessions.Responses); err != nil {
				return records.Snapshot{}, err
			}
		case sessions.Responses[0].GetResponseRange().Count != v.alive: // one has run out
			v.changed = 0
			continue
		}
		return s.snapshot(v, r, incarnation, since, suspects)
	}
}

// only returns the one key that a read has found, or nil.
func only(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// see makes a view what etcd shows of the sessions, and keeps it for the next look.
func (s *Store) see(v *view, revision int64, r []*pb.ResponseOp) error {
	changed, alive, known := only(r[0]).GetModRevision(), r[1].GetResponseRange().Kvs, *v
	*v = view{meta: known.meta, changed: changed, alive: int64(len(alive)), version: max(changed, known.version)}
	if known.version >= changed { // looked for since one has run out
		v.version = revision
	}
	lives := map[string]bool{}
	for _, kv := range alive {
		lives[s.name("alive/", kv.Key)] = true
	}
	for _, kv := range r[2].GetResponseRange().Kvs {
		incarnation := s.name("session/", kv.Key)
		if !lives[incarnation] {
			v.gone = append(v.gone, records.Stamp{Incarnation: incarnation, Beat: kv.ModRevision})
			continue
		}
		state, err := stores.ReadSession(incarnation, string(kv.Value))
		if err != nil {
			return fmt.Errorf("session %q: %w", incarnation, err)
		}
		v.sessions = append(v.sessions, state)
	}
	for _, kv := range r[3].GetResponseRange().Kvs {
		beat, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", kv.Key, stores.ErrFields)
		}
		v.gone = append(v.gone, records.Stamp{Incarnation: s.name("gone/", kv.Key), Beat: beat})
	}
	for _, kv := range r[4].GetResponseRange().Kvs {
		v.released = append(v.released, s.name("released/", kv.Key))
	}
	for n := range v.notes {
		if kv := only(r[5+n]); kv != nil {
			v.notes[n] = string(kv.Value)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.meta.revision != v.meta.revision || s.view.version < v.version {
		s.view = *v
	}
	return nil
}

func (s *Store) snapshot(v view, r reply, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	now := time.Now()
	snapshot := records.Snapshot{
		Generation: v.meta.generation, Now: time.Duration(now.UnixNano()), Beat: r.Header.Revision, Version: max(v.version, since),
		Sessions: v.sessions, Gone: v.gone, Released: v.released, Notes: v.notes,
	}
	if kv := only(r.Responses[0]); kv != nil {
		end, _ := strconv.ParseInt(string(kv.Value), 10, 64)
		longest := max(v.meta.ttl, s.handle.Given.TTL)
		snapshot.Quarantine = min(max(time.UnixMilli(end).Sub(now), time.Millisecond), longest) // of another member's clock
	}
	if partitions := r.Responses[2].GetResponseTxn(); !partitions.Succeeded {
		snapshot.Version = max(snapshot.Version, only(partitions.Responses[0]).GetModRevision())
		for _, kv := range partitions.Responses[1].GetResponseRange().Kvs {
			number, _ := strconv.Atoi(s.name("partition/", kv.Key))
			p, err := decodePartition(number, v.meta.generation, kv)
			if err != nil {
				return snapshot, fmt.Errorf("%s: %w", kv.Key, err)
			}
			snapshot.Partitions = append(snapshot.Partitions, p.Told(incarnation))
		}
	}
	if len(suspects) > 0 {
		for _, kv := range r.Responses[3].GetResponseRange().Kvs {
			live := func(state records.SessionState) bool { return state.Incarnation == s.name("session/", kv.Key) }
			if name := s.name("session/", kv.Key); slices.Contains(suspects, name) && slices.ContainsFunc(v.sessions, live) {
				snapshot.Stamps = append(snapshot.Stamps, records.Stamp{Incarnation: name, Beat: kv.ModRevision})
			}
		}
	}
	return snapshot, nil
}

// readChanges asks for what differs from a view, and the partitions that changed after a version.
func (s *Store) readChanges(ctx context.Context, v view, since int64, stamps bool) (reply, error) {
	get, prefix, keys := clientv3.OpGet, clientv3.WithPrefix(), clientv3.WithKeysOnly()
	sessions, partitions := s.key("changed/sessions"), s.key("changed/partitions")
	then := []clientv3.Op{
		get(s.key("quarantine")),
		clientv3.OpTxn([]clientv3.Cmp{unchanged(sessions, cmp.Or(v.changed, -1))},
			[]clientv3.Op{get(s.key("alive/"), prefix, clientv3.WithCountOnly())},
			[]clientv3.Op{get(sessions), get(s.key("alive/"), prefix, keys), get(s.key("session/"), prefix), get(s.key("gone/"), prefix), get(s.key("released/"), prefix, keys),
				get(s.key(records.Placements.String())), get(s.key(records.Suspects.String()))}),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(partitions), "<", since+1)}, nil,
			[]clientv3.Op{get(partitions), get(s.key("partition/"), prefix, clientv3.WithMinModRev(since+1))}),
	}
	if stamps {
		then = append(then, get(s.key("session/"), prefix, keys))
	}
	return s.commit(ctx, s.client, []clientv3.Cmp{unchanged(s.key("meta"), cmp.Or(v.meta.revision, -1))}, then, []clientv3.Op{get(s.key("meta"))})
}
