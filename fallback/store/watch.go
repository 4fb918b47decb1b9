package store

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/wake"
)

// A connection that brings no hints is tried this often; a dead one is
// replaced, which is a hint too.
const watchHealthCheck = 5 * time.Second

// Watch returns hints that something in the store changed or, after a reconnect, may have changed.
// Hints that are not received merge into one. The channel is closed when ctx ends or the store is
// closed. A hint may get lost, so poll as well.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	return s.handle.Watch(ctx, s.watch)
}

func (s *Store) watch(ctx context.Context, hints chan<- struct{}) {
	pubsub := s.subscribe(ctx)
	defer pubsub.Close()
	messages := pubsub.ChannelWithSubscriptions(
		redis.WithChannelSize(16), redis.WithChannelHealthCheckInterval(watchHealthCheck))
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
