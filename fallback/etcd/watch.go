package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
)

// watchPause is between the end of a watch and the next one.
const watchPause = 500 * time.Millisecond

// Watch returns hints that something in the store changed or, after the connection was lost, may
// have changed. Hints that are not received merge into one. The channel is closed when ctx ends or
// the store is closed. A hint may get lost, so poll as well.
func (s *Store) Watch(ctx context.Context) <-chan records.Hint {
	return s.handle.Watch(ctx, func(ctx context.Context, hints chan records.Hint) {
		for ctx.Err() == nil {
			s.watch(ctx, hints)
			wake.Sleep(watchPause, ctx.Done())
		}
	})
}

// watch passes hints on until etcd ends it, which a member that has lost its leader does, or until requests
// go to another member.
func (s *Store) watch(ctx context.Context, hints chan records.Hint) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	left := s.client.member()
	changes := s.client.Watch(ctx, s.key("changed/"), clientv3.WithPrefix())
	ends := s.client.Watch(ctx, s.key("alive/"), clientv3.WithPrefix(), clientv3.WithFilterPut())
	for more := true; more; {
		var r clientv3.WatchResponse
		select {
		case r, more = <-changes:
		case r, more = <-ends:
		case <-left:
			more = false
		}
		more = more && r.Err() == nil
		records.Hint{}.Pass(hints)
	}
}

// Ping returns an error if the store cannot be used. It changes nothing in the store.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.read(ctx, clientv3.OpGet(s.key("meta")))
	return s.handle.Failed("ping", err)
}

// Peers returns the gossip addresses of the sessions. It changes nothing in the store, and some of the
// sessions may be over.
func (s *Store) Peers(ctx context.Context) (peers []string, err error) {
	st, err := s.read(ctx, clientv3.OpGet(s.key("session/"), clientv3.WithPrefix()))
	if err != nil {
		return nil, s.handle.Failed("peers", err)
	}
	for _, kv := range st.lists[s.key("session/")].Kvs {
		if state, err := stores.ReadSession("", string(kv.Value)); err == nil && state.Gossip != "" {
			peers = append(peers, state.Gossip)
		}
	}
	return peers, nil
}

func (s *Store) read(ctx context.Context, reads ...clientv3.Op) (*step, error) {
	return s.commit(ctx, s.client, nil, reads, nil)
}
