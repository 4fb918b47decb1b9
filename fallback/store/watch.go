package store

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/wake"
)

// Watch returns hints that something in the store changed or, after a reconnect, may have changed.
// Hints that are not received merge into one. The channel is closed when ctx ends or the store is
// closed. A hint may get lost, so poll as well.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	return s.handle.Watch(ctx, s.watch)
}

func (s *Store) watch(ctx context.Context, hints chan<- struct{}) {
	pubsub := s.subscribe(ctx)
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
			if m, ok := m.(*redis.Message); ok {
				version, _ := strconv.ParseInt(m.Payload, 10, 64)
				s.hinted.Store(version)
			}
			wake.Up(hints)
		}
	}
}

func (s *Store) subscribe(ctx context.Context) *redis.PubSub {
	if s.sharded {
		return s.client.SSubscribe(ctx, s.channel)
	}
	return s.client.Subscribe(ctx, s.channel)
}
