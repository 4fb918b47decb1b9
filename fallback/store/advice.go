package store

import (
	"context"
	"strings"
)

// advise warns, once, about a server whose configuration may lose what the
// store keeps. A server that does not say is not warned about.
func (s *Store) advise(ctx context.Context) {
	if s.advised.Load() {
		return
	}
	f, err := s.run(ctx, s.client, "advice", "")
	if err != nil || !s.advised.CompareAndSwap(false, true) {
		return
	}
	for _, w := range warnings(f.Text(), f.Text(), f.Text(), f.Text()) {
		s.handle.Logger.Warn(w)
	}
}

// warnings reads the sections of INFO that carry those names. unsent is why a hint cannot be published.
func warnings(memory, persistence, replication, unsent string) []string {
	var out []string
	if unsent != "" {
		out = append(out, "workers learn of changes only by polling, so each move takes up to a second: allow the user of --redis (Config.Redis) the channels {keyway:*}:* (now "+unsent+")")
	}
	policy := infoField(memory, "maxmemory_policy")
	if policy != "" && policy != "noeviction" {
		out = append(out, "redis may evict ownership records: set maxmemory-policy noeviction (now "+policy+")")
	}
	if infoField(persistence, "aof_enabled") == "0" {
		out = append(out, "redis forgets ownership when it restarts: set appendonly yes; each restart costs a quarantine of one TTL either way")
	}
	replicas := infoField(replication, "connected_slaves")
	if replicas != "" && replicas != "0" && infoField(replication, "min_slaves_good_slaves") == "" {
		out = append(out, "a redis master that is cut off from its replicas goes on accepting writes that a failover loses: set min-replicas-to-write 1 and min-replicas-max-lag 1")
	}
	return out
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
