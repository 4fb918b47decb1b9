//go:build !keyway_redis

package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// HasEmbedded reports that the program can run a store of its own.
const HasEmbedded = true

// Embedded is a Redis inside this process, for demos, tests and clusters on one machine. It keeps
// everything in memory: each start begins with an empty store and a quarantine. It serves a few
// thousand calls per second. Its clock is never set while it runs. The build tag keyway_redis
// leaves it out, with its 2 MB.
type Embedded struct {
	server *miniredis.Miniredis
	url    url.URL
}

// StartEmbedded listens on addr (host:port, port 0 for a free one). With a
// password clients must give it, which URL then includes.
func StartEmbedded(addr, password string) (*Embedded, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if password != "" {
		m.RequireAuth(password)
	}
	if err := m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("store: start the embedded store on %s: %w", addr, err)
	}
	m.Server().SetPreHook(answer(newRunID(), steadyClock()))
	e := &Embedded{m, url.URL{Scheme: "redis", Host: m.Addr()}}
	if password != "" {
		e.url.User = url.UserPassword("", password)
	}
	return e, nil
}

// URL returns the URL for [New] and [fallback.NewClient], with the password.
func (e *Embedded) URL() string { return e.url.String() }

// Addr returns the listener's host:port.
func (e *Embedded) Addr() string { return e.url.Host }

// Close stops the server and forgets its data.
func (e *Embedded) Close() error {
	e.server.Close()
	return nil
}

func newRunID() string {
	id := make([]byte, 20)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// steadyClock returns a clock that starts with the present time and is never set afterwards, unlike
// the machine's.
func steadyClock() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(time.Since(start)) }
}

// answer answers the sections of INFO that the store reads and that miniredis lacks; without a run
// id, the store could not be distinguished from its next life. It also answers TIME by clock, if
// that is not nil.
func answer(runID string, clock func() time.Time) server.Hook {
	return func(c *server.Peer, cmd string, args ...string) bool {
		switch {
		case cmd == "TIME" && clock != nil && len(args) == 0:
			now := clock().UnixMicro()
			c.WriteLen(2)
			c.WriteBulk(strconv.FormatInt(now/1e6, 10))
			c.WriteBulk(strconv.FormatInt(now%1e6, 10))
			return true
		case cmd != "INFO" || len(args) == 0:
			return false
		}
		switch args[0] {
		case "server":
			c.WriteBulk("# Server\r\nredis_version:7.0.0\r\nrun_id:" + runID + "\r\n")
		case "memory":
			c.WriteBulk("# Memory\r\nmaxmemory_policy:noeviction\r\n")
		case "persistence", "replication":
			c.WriteBulk("")
		default:
			return false
		}
		return true
	}
}
