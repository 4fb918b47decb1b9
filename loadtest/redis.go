//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/loadtest/internal/resource"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// startRedis starts the stack's Redis servers, which keep nothing on the disk,
// unless some were given.
func (s *stack) startRedis() error {
	if given := s.given[storeRedis]; given != "" {
		s.redis = strings.Split(given, ",")[:s.servers]
		s.remote.redis = s.redis
		return nil
	}
	for i := range s.servers {
		spec, err := servers.Redis(fmt.Sprintf("redis-%s-%d", s.name, i+1), s.dir)
		if err != nil {
			return err
		}
		p, err := s.start(groupStore, spec)
		if err != nil {
			return err
		}
		reached, err := s.through(spec.Dial)
		if err != nil {
			return err
		}
		s.stores, s.redis, s.remote.redis = append(s.stores, p), append(s.redis, spec.Dial), append(s.remote.redis, reached)
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

// fullStock is what there is of each article in the beginning.
const fullStock = 1_000_000_000

func (a *app) stockKey(key string) string { return stockKey(a.Cluster, key) }

func stockKey(cluster, key string) string { return cluster + ":stock:" + key }

// sell reads how much is left of an article, and writes one less.
func (a *app) sell(ctx context.Context, j job) error {
	left, err := a.stock.Get(ctx, a.stockKey(j.key)).Int64()
	if err == redis.Nil {
		left, err = fullStock, nil
	}
	if err != nil || j.read {
		return err
	}
	return a.stock.Set(ctx, a.stockKey(j.key), left-j.count, 0).Err()
}

// keysAtOnce is how many keys are read in one command.
const keysAtOnce = 1000

// soldInRedis returns how much of the stock is gone.
func (s *stack) soldInRedis(ctx context.Context) (sum int64, err error) {
	client := redis.NewClient(&redis.Options{Addr: s.redis[0]})
	defer client.Close()
	var names []string
	for i := range s.keys {
		names = append(names, stockKey(s.cluster, resource.Name(i)))
	}
	for some := range slices.Chunk(names, keysAtOnce) {
		values, err := client.MGet(ctx, some...).Result()
		if err != nil {
			return 0, err
		}
		for _, v := range values {
			if text, ok := v.(string); ok {
				left, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return 0, err
				}
				sum += fullStock - left
			}
		}
	}
	return sum, nil
}
