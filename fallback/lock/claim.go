package lock

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
)

// claim is one acquisition, from its first try to its release. Its owner string distinguishes it
// from every other claim, so each call about it may be repeated.
type claim struct {
	terms
	queued    atomic.Bool            // may be in a waiting room
	unsettled atomic.Bool            // a call that takes the lock may still be on its way
	forced    atomic.Pointer[string] // by whom and why it was released by force, once that is known
}

// terms are the arguments of a claim's scripts. They do not change.
type terms struct {
	names   []string // sorted, each once
	read    bool
	waits   bool  // for the locks to be free
	reserve int64 // fencing tokens for hand-overs
	fifo    bool
	naming  naming
	ttl     time.Duration
	label   string
	locks   []string // the keys that are the locks; also the channels
	owner   string   // a letter for the mode, then 130 random bits, then a colon and the label if there is one
}

// ownerLen is the length of an owner without its label.
const ownerLen = 1 + 26

// claim makes a claim on the named locks.
func (l *Locker) claim(w want) *claim {
	c := &claim{terms: terms{
		names: w.names, read: w.read, waits: w.wait, fifo: l.cfg.FIFO, naming: l.cfg.naming(), ttl: w.opts.TTL, label: w.opts.Label,
		locks: make([]string, len(w.names)),
	}}
	if !w.read && len(w.names) == 1 {
		c.reserve = int64(l.cfg.HandOvers)
	}
	for i, name := range w.names {
		c.locks[i] = c.naming.key("", name)
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
	if c.label != "" {
		c.owner += ":" + c.label
	}
	c.unsettled.Store(false)
	c.queued.Store(false)
}

// plain says whether the claim is for one lock, exclusively and in any order.
func (c *claim) plain() bool { return !c.read && !c.fifo && len(c.names) == 1 }

// gone is the owner's tombstone.
func (c *claim) gone() string { return c.goneOf(c.owner) }

func (c *claim) goneOf(owner string) string {
	return c.naming.key("gone:", c.names[0]) + ":" + owner[1:ownerLen]
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
			c.naming.key("fence:", name), c.naming.key("waiting:", name), c.naming.key(last, name))
	}
	return keys
}

// fenced are the keys of the script that renews.
func (c *claim) fenced() []string {
	keys := make([]string, 0, 3*len(c.names))
	for i, name := range c.names {
		keys = append(keys, c.locks[i], c.naming.key("fence:", name), c.naming.key("forced:", name))
	}
	return keys
}

// granted is what a server has granted with that token.
func (c *claim) granted(token int64) holder.Grant {
	return holder.Grant{Token: token, Lease: c.ttl, Next: token + 1, Turns: int(c.reserve)}
}

// copy is the same claim for calls that may outlast it.
func (c *claim) copy() *claim {
	d := &claim{terms: c.terms}
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

// lasting is the same claim with another TTL.
func (c *claim) lasting(ttl time.Duration) *claim {
	d := c.copy()
	d.ttl = ttl
	return d
}

// naming makes Redis keys of names.
type naming struct {
	prefix string
	bare   bool // names are the locks' keys
}

func (cfg Config) naming() naming { return naming{cfg.Prefix, cfg.NoPrefix} }

// key is the Redis key of a lock, or of what goes with it, in the same slot.
func (n naming) key(kind, name string) string {
	switch {
	case !n.bare:
		return lockKey(n.prefix, kind, name)
	case kind == "":
		return name
	}
	if tag := hashTag(name); tag != "" && !strings.Contains(tag, "}") {
		return n.prefix + "key:" + kind + "{" + tag + "}" + name
	}
	return n.prefix + "key:" + kind + "~{-}" + name
}

// hashTag is the part of a key that decides its slot.
func hashTag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
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
