//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// startRedis starts the stack's Redis servers, which keep nothing on the disk.
func (s *stack) startRedis() error {
	for i := range max(s.servers, 1) {
		spec, err := servers.Redis(fmt.Sprintf("redis-%s-%d", s.name, i+1), s.Dir)
		if err != nil {
			return err
		}
		p, err := s.start(groupStore, spec)
		if err != nil {
			return err
		}
		s.redis, s.redisAddrs = append(s.redis, p), append(s.redisAddrs, spec.Dial)
	}
	return nil
}

// ownCommands are commands of the reader of the counters itself.
var ownCommands = []string{"info", "hello", "client|setinfo", "client|maint_notifications"}

// redisCommands returns how many commands a Redis has executed for others.
func redisCommands(ctx context.Context, addr string) (sum int64, err error) {
	calls, err := servers.Calls(ctx, addr)
	for name, n := range calls {
		if !slices.Contains(ownCommands, name) {
			sum += n
		}
	}
	return sum, err
}
