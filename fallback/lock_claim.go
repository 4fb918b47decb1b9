package fallback

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// claim is what one acquisition wants, from its first try to its release. Its
// owner tells it from every other claim, so each call about it may be repeated.
type claim struct {
	names   []string // sorted, each once
	read    bool
	id      string // 130 random bits
	reserve int64  // fencing tokens reserved beyond the first

	keys  []string // of the scripts that acquire and release
	locks []string // the keys that are the locks; also the channels

	waits     bool        // waits, so it may be in a waiting room
	unsettled atomic.Bool // a call that takes the lock may still be on its way
}

// owner is the value of a lock that the claim holds. Its first letter is the
// mode.
func (c *claim) owner() string {
	if c.read {
		return "r" + c.id
	}
	return "w" + c.id
}

// claim makes a claim on the named locks.
func (l *Locker) claim(names []string, read, waits bool) *claim {
	c := &claim{names: names, read: read, waits: waits, reserve: l.reserve(len(names), read)}
	c.renew(l.opts.Prefix, l.opts.FIFO)
	return c
}

// renew gives the claim a new owner, after the old one has given up.
func (c *claim) renew(prefix string, fifo bool) {
	c.id = rand.Text()
	c.unsettled.Store(false)
	c.keys = append(make([]string, 0, 1+4*len(c.names)), lockKey(prefix, "gone:", c.names[0])+":"+c.id)
	c.locks = c.locks[:0:0]
	for _, name := range c.names {
		lock := lockKey(prefix, "", name)
		c.locks = append(c.locks, lock)
		c.keys = append(c.keys, lock, lockKey(prefix, "fence:", name), lockKey(prefix, "waiting:", name))
		if fifo {
			c.keys = append(c.keys, lockKey(prefix, "queue:", name))
		}
	}
}

// copy is the same claim for calls that may outlast it.
func (c *claim) copy() *claim {
	d := &claim{names: c.names, read: c.read, id: c.id, reserve: c.reserve, keys: c.keys, locks: c.locks, waits: c.waits}
	d.unsettled.Store(c.unsettled.Load())
	return d
}

// reader is the claim after a downgrade.
func (c *claim) reader() *claim {
	d := c.copy()
	d.read, d.reserve = true, 0
	return d
}

// fenced are the keys of the script that renews.
func (c *claim) fenced() []string {
	keys := make([]string, 0, 2*len(c.names))
	step := (len(c.keys) - 1) / len(c.names)
	for i := 1; i < len(c.keys); i += step {
		keys = append(keys, c.keys[i], c.keys[i+1])
	}
	return keys
}

// lockKey is the Redis key of a lock or of what goes with it. The name is the
// hash tag, so that all of it is in one slot of a cluster. An empty tag would
// be none: such names share one.
func lockKey(prefix, kind, name string) string {
	if name == "" || strings.HasPrefix(name, "}") {
		return prefix + kind + "~{-}" + name
	}
	return prefix + kind + "{" + name + "}"
}

// distinct sorts names and drops duplicates, so that every caller names the
// same set of locks alike.
func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// instant is a moment on both clocks: the monotonic one, which stops while a
// virtual machine is suspended, and the wall clock, which does not but may be
// set.
type instant struct {
	mono time.Time
	wall time.Time // no monotonic reading
}

func (l *Locker) now() instant {
	now := time.Now()
	if l.opts.Clock == nil {
		return instant{now, now.Round(0)}
	}
	return instant{now, l.opts.Clock().Round(0)}
}

func (i instant) add(d time.Duration) instant { return instant{i.mono.Add(d), i.wall.Add(d)} }

// left is the time from now until i on the clock that reaches it first.
func (i instant) left(now instant) time.Duration {
	return min(i.mono.Sub(now.mono), i.wall.Sub(now.wall))
}
