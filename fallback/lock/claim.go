package lock

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
	waits   bool // for the locks to be free
	reserve int64
	fifo    bool
	prefix  string
	locks   []string // the keys that are the locks; also the channels

	owner     string      // a letter for the mode, then 130 random bits
	queued    atomic.Bool // may be in a waiting room
	unsettled atomic.Bool // a call that takes the lock may still be on its way
}

// claim makes a claim on the named locks.
func (l *Locker) claim(w want) *claim {
	c := &claim{
		names: w.names, read: w.read, waits: w.wait, reserve: l.reserve(len(w.names), w.read),
		fifo: l.opts.FIFO, prefix: l.opts.Prefix, locks: make([]string, len(w.names)),
	}
	for i, name := range w.names {
		c.locks[i] = lockKey(c.prefix, "", name)
	}
	c.renew()
	return c
}

// renew gives the claim a new owner, after the old one has given up.
func (c *claim) renew() {
	c.owner = "w" + rand.Text()
	if c.read {
		c.owner = "r" + c.owner[1:]
	}
	c.unsettled.Store(false)
	c.queued.Store(false)
}

// plain says whether the claim is for one lock, exclusively and in any order.
func (c *claim) plain() bool { return !c.read && !c.fifo && len(c.names) == 1 }

// gone is the owner's tombstone.
func (c *claim) gone() string {
	return lockKey(c.prefix, "gone:", c.names[0]) + ":" + c.owner[1:]
}

// keys are those of the scripts that acquire and release.
func (c *claim) keys() []string {
	last := "bell:"
	if c.fifo {
		last = "queue:"
	}
	keys := append(make([]string, 0, 1+4*len(c.names)), c.gone())
	for i, name := range c.names {
		keys = append(keys, c.locks[i],
			lockKey(c.prefix, "fence:", name), lockKey(c.prefix, "waiting:", name), lockKey(c.prefix, last, name))
	}
	return keys
}

// fenced are the keys of the script that renews.
func (c *claim) fenced() []string {
	keys := make([]string, 0, 2*len(c.names))
	for i, name := range c.names {
		keys = append(keys, c.locks[i], lockKey(c.prefix, "fence:", name))
	}
	return keys
}

// copy is the same claim for calls that may outlast it.
func (c *claim) copy() *claim {
	d := &claim{
		names: c.names, read: c.read, waits: c.waits, reserve: c.reserve,
		fifo: c.fifo, prefix: c.prefix, locks: c.locks, owner: c.owner,
	}
	d.unsettled.Store(c.unsettled.Load())
	d.queued.Store(c.queued.Load())
	return d
}

// reader is the claim after a downgrade.
func (c *claim) reader() *claim {
	d := c.copy()
	d.read, d.reserve, d.owner = true, 0, "r"+c.owner[1:]
	return d
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
