//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

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

func redisCommands(ctx context.Context, addr string) (int64, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	info, err := client.Info(ctx, "commandstats").Result()
	return parseCommands(info), err
}

// ownCommands are those that reading the counters takes, and connecting.
var ownCommands = []string{"info", "hello", "client|setinfo", "client|maint_notifications"}

// parseCommands sums up the calls in the section commandstats of INFO.
func parseCommands(info string) (sum int64) {
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || slices.Contains(ownCommands, name) {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(calls, 10, 64)
		sum += n
	}
	return sum
}
