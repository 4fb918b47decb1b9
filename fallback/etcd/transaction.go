package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// errBegun means that a generation has begun, so the call begins anew, or ends.
var errBegun = errors.New("etcd: a generation has begun")

// step is a transaction on its way: the keys that it has read, and the operations that it will make.
type step struct {
	*clientv3.TxnResponse      // of what it has read; nil for a guess
	behind                bool // etcd is at a lower revision than it was before: it has lost writes

	meta  meta
	now   time.Time
	read  map[string]*mvccpb.KeyValue  // keys; nil for one that is not there
	lists map[string]*pb.RangeResponse // by prefix
	ops   []clientv3.Op
}

func (st *step) has(key string) bool { return st.read[key] != nil }

// revision returns the revision of a key that was read, 0 if it is not there.
func (st *step) revision(key string) int64 { return st.read[key].GetModRevision() }

func (st *step) put(key, value string, opts ...clientv3.OpOption) {
	st.ops = append(st.ops, clientv3.OpPut(key, value, opts...))
}

func (st *step) delete(key string) { st.ops = append(st.ops, clientv3.OpDelete(key)) }

// transact reads, calls f with the result, and writes what f puts into it. The transaction that writes
// compares the revision of each single key that was read. If one has changed, transact calls f again with the
// new values. gen is the generation that the caller knows, "" for any, and existing for any of a store that is not
// empty. Unless st is nil, it is a guess of what reads will show, and transact does not read at first.
func (s *Store) transact(ctx context.Context, client *connection, gen string, st *step, reads []clientv3.Op, f func(*step) error) error {
	reads = append([]clientv3.Op{clientv3.OpGet(s.key("meta"))}, reads...)
	if st != nil && (f(st) != nil || len(st.ops) == 0) { // only what is read now may refuse
		st = nil
	}
	for {
		var compare []clientv3.Cmp
		ops := reads
		if st != nil {
			for key := range st.read {
				compare = append(compare, unchanged(key, st.revision(key)))
			}
			ops = st.ops
		}
		next, err := s.commit(ctx, client, compare, ops, reads)
		if err != nil {
			return err
		}
		if st != nil && next.Succeeded {
			if !next.behind && next.Header.ClusterId == st.meta.cluster {
				for _, op := range st.ops {
					if key := op.KeyBytes(); op.IsPut() && strings.HasPrefix(string(key), s.key("partition/")) {
						s.learn(st.meta.generation, 0, &mvccpb.KeyValue{Key: key, Value: op.ValueBytes(), ModRevision: next.Header.Revision})
					}
				}
				return nil
			}
			st = nil
			continue
		}
		st = next
		st.meta, err = s.enter(ctx, st, gen)
		if errors.Is(err, errBegun) {
			st = nil
			continue
		}
		if err == nil {
			err = f(st)
		}
		if errors.Is(err, errLost) {
			err = cmp.Or(s.beginGeneration(ctx, st.meta, st.meta.settings), records.ErrGeneration)
		}
		if err != nil || len(st.ops) == 0 {
			return err
		}
	}
}

// guess returns what meta and single keys of sessions and partitions probably hold, as the handle has seen them; nil if it
// has seen nothing of the generation.
func (s *Store) guess(gen string, keys map[string]bool) *step {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if gen == "" || v.meta.generation != gen {
		return nil
	}
	st := &step{meta: v.meta, now: s.now(), read: map[string]*mvccpb.KeyValue{s.key("meta"): {ModRevision: v.meta.revision}}}
	for key := range keys {
		st.read[key] = cmp.Or(v.present[key], v.partitions[key])
	}
	return st
}

func unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// commit makes a transaction, and returns what it has read.
func (s *Store) commit(ctx context.Context, client *connection, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (*step, error) {
	s.mu.Lock()
	life, least := s.life, s.revision
	s.mu.Unlock()
	st := &step{read: map[string]*mvccpb.KeyValue{}, lists: map[string]*pb.RangeResponse{}}
	err := s.askEtcd(ctx, client, func(ctx context.Context) (_ *pb.ResponseHeader, err error) {
		if st.TxnResponse, err = client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit(); err != nil {
			return nil, err
		}
		return st.Header, nil
	})
	if err != nil {
		return nil, err
	}
	st.now = s.now()
	made := otherwise
	if st.Succeeded {
		made = then
	}
	for i, op := range made {
		key, got := string(op.KeyBytes()), st.Responses[i].GetResponseRange()
		switch {
		case !op.IsGet():
		case op.RangeBytes() != nil:
			st.lists[key] = got
		case len(got.Kvs) > 0:
			st.read[key] = got.Kvs[0]
		default:
			st.read[key] = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if life == s.life {
		st.behind = st.Header.Revision < least
		s.revision = max(s.revision, st.Header.Revision)
	}
	return st, nil
}

// meta is the value of the key meta.
type meta struct {
	generation string
	id         ring.StoreID
	settings   string        // in stores.SettingsText's form
	ttl        time.Duration // of the sessions
	cluster    uint64        // etcd's id of itself
	revision   int64         // at which the generation began
}

func decodeMeta(kv *mvccpb.KeyValue) (m meta, err error) {
	f := stores.Read(string(kv.Value))
	m = meta{generation: f.Text(), settings: f.Text(), ttl: time.Duration(f.Number()), cluster: uint64(f.Number()), id: f.ID(), revision: kv.ModRevision}
	return m, f.Err
}

func (m meta) encode() string {
	return stores.Join(m.generation, m.settings, number(int64(m.ttl)), number(int64(m.cluster)), m.id.String())
}

// existing stands for a generation that the caller does not know. An empty store begins none.
const existing = "existing"

// enter returns what a step has read of meta. If the generation is over, it begins another one and returns errBegun.
func (s *Store) enter(ctx context.Context, st *step, gen string) (m meta, err error) {
	kv := st.read[s.key("meta")]
	if kv != nil {
		if m, err = decodeMeta(kv); err != nil {
			return m, err
		}
	}
	if kv == nil && gen == existing {
		return m, stores.ErrEmpty
	}
	known := s.handle.Knows(m.generation)
	if kv != nil && st.behind && !known { // whoever began it has seen to what was lost
		s.beginLife(st.Header.Revision)
	}
	over := kv == nil || m.cluster != st.Header.ClusterId || st.behind && known
	if lease, begun := s.begun.Load(m.generation); begun && !over {
		// Until it was written, sessions of the generation before may have been renewed.
		switch err := s.prolong(ctx, s.client, lease.(clientv3.LeaseID)); {
		case err == nil:
			s.begun.Delete(m.generation)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			over = true
		default:
			return m, err
		}
	}
	if over {
		return m, cmp.Or(s.beginGeneration(ctx, m, m.settings), errBegun)
	}
	s.handle.Learn(m.generation, m.id)
	if gen != "" && gen != existing && gen != m.generation {
		err = records.ErrGeneration
	}
	return m, err
}

// beginGeneration begins a generation in place of an old one, unless another process has. The sessions of the new one
// must have settings, by default the store's own. The quarantine lasts for the longer one of the two TTLs. Its lease runs
// before it is written, so enter prolongs it.
func (s *Store) beginGeneration(ctx context.Context, old meta, settings string) error {
	there, err := s.read(ctx, clientv3.OpGet(s.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return err
	}
	skip := s.handle.NewCluster.Load() && there.lists[s.prefix].Count == 0
	m := meta{generation: rand.Text(), settings: settings, ttl: old.ttl, cluster: there.Header.ClusterId, id: cmp.Or(old.id, s.handle.Identity())}
	if own := stores.SettingsText(s.handle.Given); settings == "" || settings == own {
		m.settings, m.ttl = own, s.handle.Given.TTL
	}
	quarantine := max(old.ttl, s.handle.Given.TTL)
	ops := []clientv3.Op{clientv3.OpPut(s.key("meta"), m.encode()), clientv3.OpPut(s.key("changed/sessions"), ""), clientv3.OpDelete(s.key("complete"))}
	for _, prefix := range []string{"session/", "alive/", "gone/"} {
		ops = append(ops, clientv3.OpDelete(s.key(prefix), clientv3.WithPrefix()))
	}
	if skip {
		ops = append(ops, clientv3.OpDelete(s.key("quarantine")))
	} else {
		lease, err := s.grant(ctx, quarantine)
		if err != nil {
			return err
		}
		s.begun.Store(m.generation, lease)
		ops = append(ops, clientv3.OpPut(s.key("quarantine"), number(time.Now().Add(quarantine).UnixMilli()), clientv3.WithLease(lease)))
	}
	st, err := s.commit(ctx, s.client, []clientv3.Cmp{unchanged(s.key("meta"), old.revision)}, ops, nil)
	if err == nil && st.Succeeded {
		s.beginLife(st.Header.Revision)
	}
	return err
}

func (s *Store) beginLife(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	s.revision = revision
}
