package store

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// Watch returns hints that something in the store changed or, after a reconnect, may have changed.
// Hints that are not received become one without content. The channel is closed when ctx ends or the store is
// closed. A hint may get lost, so poll as well.
func (s *Store) Watch(ctx context.Context) <-chan records.Hint {
	return s.handle.Watch(ctx, s.watch)
}

func (s *Store) watch(ctx context.Context, hints chan records.Hint) {
	subscribe := s.client.Subscribe
	if s.sharded {
		subscribe = s.client.SSubscribe
	}
	pubsub := subscribe(ctx, s.channel)
	defer pubsub.Close()
	// Without pings, which nobody waits to see answered: the connection's keep-alive notices a server that is gone.
	messages := pubsub.ChannelWithSubscriptions(redis.WithChannelSize(16), redis.WithChannelHealthCheckInterval(0))
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-messages:
			if !ok {
				return
			}
			hint := records.Hint{}
			if m, ok := m.(*redis.Message); ok {
				hint = readHint(m.Payload)
				s.hinted.Store(hint.Version)
				s.follow(hint)
			}
			hint.Pass(hints)
		}
	}
}

// readHint reads what prelude.lua publishes; anything else is a hint without content.
func readHint(text string) (h records.Hint) {
	f := stores.Read(text)
	h.Version, h.Generation = f.Number(), f.Text()
	for f.More() {
		partition := stores.Values([]any{f.Text(), f.Text(), "", []any{}})
		h.Partitions = append(h.Partitions, readPartition(partition))
		f.Err = cmp.Or(f.Err, partition.Err)
	}
	if f.Err != nil {
		return records.Hint{}
	}
	return h
}

// follow has the handle know the version of a hint that tells all that has changed: no incarnation has.
func (s *Store) follow(h records.Hint) {
	if known := s.content.Load(); h.Partitions != nil && known.generation == h.Generation && known.version+1 == h.Version {
		next := *known
		next.version = h.Version
		s.keep(&next)
	}
}
