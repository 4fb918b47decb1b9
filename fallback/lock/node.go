package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/holder"
)

var errUnexpected = errors.New("lock: unexpected reply of a script")

// lockServer is where locks are kept: one Redis (or cluster), or several
// independent ones. Every method may be repeated for the same claim.
type lockServer interface {
	// acquire makes one try. A claim that waits may queue for up to
	// lockWaiterLease.
	acquire(ctx context.Context, c *claim, first bool) (grant, error)

	// verdict asks for the state of a claim: Held, Gone, or Taken.
	verdict(ctx context.Context, ask asking) (holder.Answer, error)

	// release frees what the claim holds and leaves its queues.
	release(ctx context.Context, c *claim) (freeing, error)

	// state says who has a lock. It knows waiters only with FIFO.
	state(ctx context.Context, name string) (State, error)
}

// asking is a question to one node. The answer is above 0 for yes; else 0 if the claim's lock is gone,
// or less if it is taken.
type asking func(context.Context, *lockNode) (int64, error)

// lockWaiterLease is how long a waiter keeps its place without a sign of life.
// Waiters try at least every lockLongestWait.
const lockWaiterLease = 2 * time.Second

// grant is the answer to one try.
type grant struct {
	token int64         // above 0 when granted
	left  time.Duration // else: how long it may take; 0 for a claim that was released before this try
}

// freeing is the answer to a release.
type freeing struct {
	freed  bool
	others bool // other clients listen for the lock
}

// lockNode keeps locks in one Redis server or cluster. mu guards its calls under way (scripts.go).
type lockNode struct {
	l       *Locker // whose locks they are; its Close waits for all calls
	client  redis.UniversalClient
	publish string
	batch   int // calls in one pipeline

	mu    sync.Mutex
	queue []*wireCall
	lanes int
}

func newLockNode(l *Locker, client redis.UniversalClient) *lockNode {
	n := &lockNode{l: l, client: client, publish: "PUBLISH", batch: 1}
	switch client.(type) {
	case *redis.ClusterClient:
		n.publish = "SPUBLISH"
	case *redis.Client:
		n.batch = wireBatch
	}
	return n
}

func (n *lockNode) acquire(ctx context.Context, c *claim, first bool) (grant, error) {
	stay := int64(0)
	if c.waits {
		stay = lockWaiterLease.Milliseconds()
	}
	ttl := c.opts.TTL.Milliseconds()
	plain := first && c.plain(c.cfg.FIFO)
	var reply *redis.Cmd
	switch {
	case plain:
		keys := []string{c.gone(c.owner), c.locks[0], c.cfg.key("fence:", c.names[0])}
		reply = n.run(ctx, c, &scripts.take, keys, c.owner, ttl, c.reserve)
	case c.cfg.FIFO:
		reply = n.run(ctx, c, &scripts.fifo, c.keys(), c.owner, ttl, c.reserve, stay, n.publish)
	case c.read:
		reply = n.run(ctx, c, &scripts.read, c.keys(), c.owner, ttl, stay)
	default:
		reply = n.run(ctx, c, &scripts.acquire, c.keys(), c.owner, ttl, c.reserve, stay, !first)
	}
	if !plain {
		c.queued.Store(c.waits)
	}
	status, value, err := pair(reply)
	switch {
	case err != nil:
		return grant{}, err
	case status == 1:
		return grant{token: value}, nil
	default:
		return grant{left: time.Duration(value) * time.Millisecond}, nil
	}
}

func (n *lockNode) verdict(ctx context.Context, ask asking) (holder.Answer, error) {
	value, err := ask(ctx, n)
	return answer(value), err
}

func answer(value int64) holder.Answer {
	switch {
	case value > 0:
		return holder.Held
	case value == 0:
		return holder.Gone
	}
	return holder.Taken
}

// renewing renews a claim, and raises its fences to at least floor.
func renewing(c *claim, floor int64) asking {
	return func(ctx context.Context, n *lockNode) (int64, error) {
		return n.run(ctx, nil, &scripts.renew, c.each("fence:"), c.owner, c.opts.TTL.Milliseconds(), floor).Int64()
	}
}

func (n *lockNode) release(ctx context.Context, c *claim) (freeing, error) {
	var reply *redis.Cmd
	if !c.queued.Load() && !c.unsettled.Load() && c.plain(c.cfg.FIFO) { // nothing went wrong since it was taken
		reply = n.run(ctx, nil, &scripts.give, []string{c.locks[0], c.cfg.key("bell:", c.names[0])}, c.owner, n.publish)
	} else {
		gone := int64(0)
		if c.unsettled.Load() {
			gone = tombstone(c.opts.TTL).Milliseconds()
		}
		reply = n.run(ctx, nil, &scripts.release, c.keys(), c.owner, gone, n.publish, c.queued.Load(), c.cfg.FIFO)
	}
	freed, told, err := pair(reply)
	return freeing{freed: err == nil && freed == int64(len(c.names)), others: n.others(c, told)}, err
}

// tombstone is how long an owner's tombstone stays.
func tombstone(ttl time.Duration) time.Duration { return max(ttl, 30*time.Second) }

// others reports whether another client was told of a release.
func (n *lockNode) others(c *claim, told int64) bool {
	return told > 0 && (n.l.hubs == nil || told > n.l.hubs.listening(c.locks))
}

// downgrade turns the claim, which must be of one lock, into a reader's.
func (n *lockNode) downgrade(ctx context.Context, c *claim) (int64, error) {
	keys := []string{c.gone(c.owner), c.locks[0]}
	return n.run(ctx, c, &scripts.downgrade, keys, c.owner, "r"+c.owner[1:], c.opts.TTL.Milliseconds(), n.publish).Int64()
}

// pair returns the two integers that a script has replied.
func pair(reply *redis.Cmd) (a, b int64, err error) {
	values, err := reply.Int64Slice()
	if err != nil || len(values) != 2 {
		return 0, 0, cmp.Or(err, fmt.Errorf("%w: %v, want two integers", errUnexpected, values))
	}
	return values[0], values[1], nil
}

// passing says whether a failed call may succeed when repeated: anything but
// a refusal that is not of a passing state of the server.
func passing(err error) bool {
	return unanswered(err) || slices.ContainsFunc(
		[]string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "NOSCRIPT", "BUSY"},
		func(state string) bool { return redis.HasErrorPrefix(err, state) })
}

func (n *lockNode) state(ctx context.Context, name string) (State, error) {
	keys := []string{n.l.cfg.key("", name), n.l.cfg.key("fence:", name), n.l.cfg.key("waiting:", name)}
	values, err := n.run(ctx, nil, &scripts.state, keys, n.l.cfg.FIFO).Slice()
	if err != nil || len(values) != 6 {
		return State{}, cmp.Or(err, fmt.Errorf("%w: %v, want six values", errUnexpected, values))
	}
	numbers, err := redis.NewCmdResult(values[1:], nil).Int64Slice()
	owner, isOwner := values[0].(string)
	if err != nil || !isOwner {
		return State{}, fmt.Errorf("%w: %v, want integers after an owner", errUnexpected, values)
	}
	s := State{Held: numbers[0] == 1, Label: labelOf(owner), Token: numbers[3], Waiting: int(numbers[4])}
	if s.Held {
		s.Readers, s.Left = int(numbers[1]), time.Duration(max(numbers[2], 0))*time.Millisecond
	}
	return s, nil
}

// labelOf is the label in an owner; "" if it has none or is another program's.
func labelOf(owner string) string {
	if len(owner) <= ownerLen || owner[0] != 'w' && owner[0] != 'r' || owner[ownerLen] != ':' {
		return ""
	}
	return strings.ToValidUTF8(owner[ownerLen+1:], "?")
}
