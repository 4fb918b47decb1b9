//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/cli"
)

// front is what stands between the clients and the app.
type front int

const (
	frontAny     front = iota // nginx, round robin
	frontHash                 // nginx, by key
	frontRouter               // Keyway's, to workers that embed the library
	frontSidecar              // Keyway's, to sidecars
)

// contender is a design from the front door to the lock.
type contender struct {
	id, title string
	front     front
	servers   int    // of Redis; 0: one
	store     string // beside Redis
	lock      bool   // a mutex in the process can stand before it
	local     bool   // and it does
	caveat    string // on what it is wrong at; "" for one that is always right
	wrong     bool   // must be caught as wrong
	fixed     bool   // its processes must stay the same
}

// keyway reports whether it is one.
func (c contender) keyway() bool { return c.front == frontRouter || c.front == frontSidecar }

// design is its id without localSuffix.
func (c contender) design() string { return strings.TrimSuffix(c.id, localSuffix) }

// Ids of contenders.
const (
	keywayEmbedded = "keyway"
	keywayBatch    = "keyway-batch" // with a handler of batches
	keywaySidecar  = "sidecar"
	lockService    = "lock-service" // locks of a Keyway worker, taken by its client
	noneRouter     = "none-router"  // a Keyway worker behind a router that finds no keys, so that nothing excludes
	pgVersion      = "pg-version"
)

// localSuffix asks for a contender with a mutex in the process before its lock.
const localSuffix = "+local"

// contenders are all there are. Those with a lock can have localSuffix.
func contenders() []contender {
	return []contender{
		{id: "plain", title: "nginx + plain Redis lock, polling", lock: true},
		{id: "lock", title: "nginx + Keyway's Redis lock", lock: true},
		{id: "redsync", title: "nginx + redsync", lock: true},
		{id: "redislock", title: "nginx + bsm/redislock", lock: true},
		{id: "rueidislock", title: "nginx + rueidislock", lock: true},
		{id: "redlock", title: "nginx + Redlock, 5 servers (redsync)", lock: true, servers: 5},
		{id: "quorum", title: "nginx + Redlock, 5 servers (Keyway's)", lock: true, servers: 5},
		{id: "pg-row", title: "nginx + PostgreSQL row lock", store: storePostgres},
		{id: "pg-advisory", title: "nginx + PostgreSQL advisory lock", store: storePostgres},
		{id: pgVersion, title: "nginx + PostgreSQL, version = ? updates", store: storePostgres},
		{id: "mariadb", title: "nginx + MariaDB named lock", lock: true, store: storeMariaDB},
		{id: "etcd", title: "nginx + etcd lock", lock: true, store: storeEtcd},
		{id: "zookeeper", title: "nginx + ZooKeeper lock", lock: true, store: storeZooKeeper},
		{id: lockService, title: "nginx + Keyway's lock service", lock: true},
		{id: "streams", title: "nginx + Redis Streams, a consumer per partition", fixed: true},
		{id: "hash", title: "nginx by key + local mutex", front: frontHash, caveat: "right here, wrong when members change"},
		{id: keywayEmbedded, title: "Keyway, embedded", front: frontRouter},
		{id: keywayBatch, title: "Keyway, embedded, with Batch", front: frontRouter},
		{id: keywaySidecar, title: "Keyway, sidecars", front: frontSidecar},
		{id: noneRouter, title: "Keyway's router, no exclusion (must be caught)", front: frontRouter, wrong: true, caveat: "excludes nothing"},
		{id: "none", title: "no exclusion (must be caught)", wrong: true, caveat: "excludes nothing"},
	}
}

// ids are the ids of all contenders.
func ids() (all []string) {
	for _, c := range contenders() {
		all = append(all, c.id)
	}
	return all
}

// choose finds contenders by their ids.
func choose(names []string) (chosen []contender, err error) {
	all := contenders()
	for _, name := range names {
		id, local := strings.CutSuffix(name, localSuffix)
		i := slices.IndexFunc(all, func(c contender) bool { return c.id == id })
		if i < 0 {
			return nil, cli.Usagef("--contenders: there is no %q; there are %s", name, strings.Join(ids(), ", "))
		}
		c := all[i]
		if local {
			if !c.lock {
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
