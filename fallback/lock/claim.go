package lock

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/holder"
)

// claim is one acquisition, from its first try to its release. Its owner string distinguishes it
// from every other claim, so each call about it may be repeated. A granted claim does not change:
// another TTL or mode makes another claim of it, with the same marks.
type claim struct {
	ask
	*marks
	cfg     *Config  // of the Locker
	reserve int64    // fencing tokens for hand-overs
	locks   []string // the keys that are the locks; also the channels
	owner   string   // a letter for the mode, then 130 random bits, then a colon and the label if there is one
}

// marks are what is known of an owner's calls.
type marks struct {
	queued    atomic.Bool // it may be in a waiting room
	unsettled atomic.Bool // a call that takes the lock may still be on its way
}

// handOvers is how many times in a row a lock is passed on without asking Redis.
const handOvers = 32

// ownerLen is the length of an owner without its label.
const ownerLen = 1 + 26

// claim makes a claim of what a caller asked for.
func (l *Locker) claim(a ask) *claim {
	c := &claim{ask: a, cfg: &l.cfg, locks: make([]string, len(a.names))}
	if a.plain(l.cfg.FIFO) {
		c.reserve = handOvers
	}
	for i, name := range a.names {
		c.locks[i] = l.cfg.key("", name)
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
	if c.opts.Label != "" {
		c.owner += ":" + c.opts.Label
	}
	c.marks = new(marks)
}

// gone is the tombstone of the claim's owner, or of another owner of the locks.
func (c *claim) gone(owner string) string {
	return c.cfg.key("gone:", c.names[0]) + ":" + owner[1:ownerLen]
}

// keys are those of the scripts that acquire and release.
func (c *claim) keys() []string {
	last := "bell:"
	if c.cfg.FIFO {
		last = "queue:"
	}
	return append([]string{c.gone(c.owner)}, c.each("fence:", "waiting:", last)...)
}

// each returns the keys of each lock: the lock itself, and what goes with it.
func (c *claim) each(kinds ...string) []string {
	keys := make([]string, 0, len(c.names)*(1+len(kinds)))
	for i, name := range c.names {
		keys = append(keys, c.locks[i])
		for _, kind := range kinds {
			keys = append(keys, c.cfg.key(kind, name))
		}
	}
	return keys
}

// granted is what a server has granted with that token.
func (c *claim) granted(token int64) holder.Grant {
	return holder.Grant{Token: token, Lease: c.opts.TTL, Next: token + 1, Turns: int(c.reserve)}
}

// reader is the claim after a downgrade.
func (c *claim) reader() *claim {
	d := *c
	d.read, d.reserve, d.owner = true, 0, "r"+c.owner[1:]
	return &d
}

// key is the Redis key of a lock, or of what goes with it. All of them are in one slot of a cluster,
// since the name, or its hash tag, is their hash tag. An empty tag would be none: such names share one.
func (cfg *Config) key(kind, name string) string {
	prefix, tag, rest := cfg.Prefix+kind, name, ""
	shared := tag == "" || tag[0] == '}'
	if cfg.NoPrefix {
		prefix, tag, rest = cfg.Prefix+"key:"+kind, hashTag(name), name
		shared = tag == "" || strings.Contains(tag, "}")
	}
	switch {
	case cfg.NoPrefix && kind == "":
		return name
	case shared:
		return prefix + "~{-}" + name
	}
	return prefix + "{" + tag + "}" + rest
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

// distinct sorts names and drops duplicates, so that every caller names the same set of locks alike.
func distinct(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
