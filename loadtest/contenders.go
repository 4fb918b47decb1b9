//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/cli"
)

// front is what stands between the clients and the app.
type front string

const (
	frontAny     front = "any"     // nginx, round robin
	frontHash    front = "hash"    // nginx, by key
	frontRouter  front = "router"  // Keyway's, to workers that embed the library
	frontSidecar front = "sidecar" // Keyway's, to sidecars
)

// contender is a design from the front door to the lock.
type contender struct {
	id, title string
	front     front
	guard     string
	servers   int    // of Redis
	store     string // as well
	local     bool   // a mutex in the process before the guard
	caveat    string // on what it is wrong at; "" for one that is always right
	wrong     bool   // must be caught as wrong
	fixed     bool   // its processes must stay the same
}

// keyway reports whether it is one.
func (c contender) keyway() bool { return c.front == frontRouter || c.front == frontSidecar }

// programs reports whether it needs Keyway's programs.
func (c contender) programs() bool { return c.keyway() || c.guard == guardService }

// lockService is the id of the contender whose locks are kept by a Keyway worker.
const lockService = "lock-service"

// localSuffix asks for a contender with a mutex in the process before its lock.
const localSuffix = "+local"

// contenders are all there are. Those with a lock can have localSuffix.
func contenders() []contender {
	return []contender{
		{id: "plain", title: "nginx + plain Redis lock, polling", front: frontAny, guard: guardPlain, servers: 1},
		{id: "lock", title: "nginx + Keyway's Redis lock", front: frontAny, guard: guardLock, servers: 1},
		{id: "lock-polling", title: "nginx + Keyway's Redis lock, no hand-over, polling", front: frontAny, guard: guardLockPolling, servers: 1},
		{id: "redsync", title: "nginx + redsync", front: frontAny, guard: guardRedsync, servers: 1},
		{id: "redislock", title: "nginx + bsm/redislock", front: frontAny, guard: guardRedislock, servers: 1},
		{id: "rueidislock", title: "nginx + rueidislock", front: frontAny, guard: guardRueidislock, servers: 1},
		{id: "redlock", title: "nginx + Redlock, 5 servers (redsync)", front: frontAny, guard: guardRedsync, servers: 5},
		{id: "quorum", title: "nginx + Redlock, 5 servers (Keyway's)", front: frontAny, guard: guardQuorum, servers: 5},
		{id: "pg-row", title: "nginx + PostgreSQL row lock", front: frontAny, guard: guardRow, servers: 1, store: storePostgres},
		{id: "pg-advisory", title: "nginx + PostgreSQL advisory lock", front: frontAny, guard: guardAdvisory, servers: 1, store: storePostgres},
		{id: "pg-version", title: "nginx + PostgreSQL, version = ? updates", front: frontAny, guard: guardVersion, servers: 1, store: storePostgres},
		{id: "mariadb", title: "nginx + MariaDB named lock", front: frontAny, guard: guardNamed, servers: 1, store: storeMariaDB},
		{id: "etcd", title: "nginx + etcd lock", front: frontAny, guard: guardEtcd, servers: 1, store: storeEtcd},
		{id: "zookeeper", title: "nginx + ZooKeeper lock", front: frontAny, guard: guardZooKeeper, servers: 1, store: storeZooKeeper},
		{id: lockService, title: "nginx + Keyway's lock service", front: frontAny, guard: guardService, servers: 1},
		{id: "streams", title: "nginx + Redis Streams, a consumer per partition", front: frontAny, guard: guardStreams, servers: 1, fixed: true},
		{id: "hash", title: "nginx by key + local mutex", front: frontHash, guard: guardLocal, servers: 1, caveat: "right here, wrong when members change"},
		{id: "keyway", title: "Keyway, embedded", front: frontRouter, guard: guardMember, servers: 1},
		{id: "keyway-batch", title: "Keyway, embedded, with Batch", front: frontRouter, guard: guardBatch, servers: 1},
		{id: "sidecar", title: "Keyway, sidecars", front: frontSidecar, guard: guardSidecar, servers: 1},
		{id: "none-router", title: "Keyway's router, no exclusion (must be caught)", front: frontRouter, guard: guardUnkeyed, servers: 1, wrong: true, caveat: "excludes nothing"},
		{id: "none", title: "no exclusion (must be caught)", front: frontAny, guard: guardNone, servers: 1, wrong: true, caveat: "excludes nothing"},
	}
}

// ids are the ids of all contenders.
func ids() []string {
	var all []string
	for _, c := range contenders() {
		all = append(all, c.id)
	}
	return all
}

// choose finds contenders by their ids.
func choose(names []string) (chosen []contender, err error) {
	all := contenders()
	if slices.Equal(names, []string{"all"}) {
		names = ids()
	}
	for _, name := range names {
		id, local := strings.CutSuffix(name, localSuffix)
		i := slices.IndexFunc(all, func(c contender) bool { return c.id == id })
		if i < 0 {
			return nil, cli.Usagef("--contenders: there is no %q; there are %s", name, strings.Join(ids(), ", "))
		}
		c := all[i]
		if local {
			switch c.guard {
			case guardPlain, guardLock, guardLockPolling, guardRedsync, guardRedislock, guardRueidislock, guardQuorum, guardNamed, guardEtcd, guardZooKeeper, guardService:
			default:
				return nil, cli.Usagef("--contenders: %s has no lock to put a local mutex before", id)
			}
			c.id, c.title, c.local = name, c.title+" + local mutex", true
		}
		if slices.ContainsFunc(chosen, func(o contender) bool { return o.id == c.id }) {
			return nil, cli.Usagef("--contenders: %s is named twice", name)
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}
