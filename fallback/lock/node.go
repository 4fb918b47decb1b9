package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var errUnexpected = errors.New("lock: unexpected reply of a script")

// lockServer is where locks are kept: one Redis (or cluster), or several
// independent ones. Every method may be repeated for the same claim.
type lockServer interface {
	// acquire makes one try. A claim that waits may queue for up to
	// lockWaiterLease.
	acquire(ctx context.Context, c *claim, first bool) (grant, error)

	// verdict asks for the state of a claim: renewOK, renewGone, renewTaken or
	// renewForced; with the last, the claim's forced is set.
	verdict(ctx context.Context, ask asking) (int64, error)

	// release frees what the claim holds and leaves its queues. With used
	// above 0, the reserved fencing tokens after it are given back.
	release(ctx context.Context, c *claim, used int64) (freeing, error)

	// force frees a lock, regardless of holder, and returns from how many owners. A repeated call
	// with the same id, which is random, has no further effect.
	force(ctx context.Context, name, id, why string) (int64, error)

	// state says who has a lock. It knows waiters only with FIFO.
	state(ctx context.Context, name string) (State, error)

	close()
}

// asking is a question to one node.
type asking func(context.Context, *lockNode) (int64, error)

// lockWaiterLease is how long a waiter keeps its place without a sign of life.
// Waiters try at least every lockLongestWait.
const lockWaiterLease = 2 * time.Second

const (
	renewOK     = 1
	renewGone   = 0
	renewTaken  = -1
	renewForced = -2
)

// grant is the answer to one try.
type grant struct {
	token  int64         // above 0 when granted
	left   time.Duration // else: how long it may take
	gaveUp bool          // else: the claim was released before this try
}

// freeing is the answer to a release.
type freeing struct {
	freed  bool
	others bool // other clients listen for the lock
}

// lockNode keeps locks in one Redis server or cluster.
type lockNode struct {
	wire    *lockWire
	cfg     Config
	publish string
	hubs    *lockHubs // nil if waiters are to poll
}

func newLockNode(client redis.UniversalClient, cfg Config, inPlace bool) *lockNode {
	n := &lockNode{wire: newLockWire(client, cfg.Timeout, inPlace), cfg: cfg, publish: "PUBLISH"}
	if _, cluster := client.(*redis.ClusterClient); cluster {
		n.publish = "SPUBLISH"
	}
	if _, ring := client.(*redis.Ring); !cfg.Poll && !ring {
		n.hubs = newLockHubs(client)
	}
	return n
}

func (n *lockNode) acquire(ctx context.Context, c *claim, first bool) (grant, error) {
	stay := int64(0)
	if c.waits {
		stay = lockWaiterLease.Milliseconds()
	}
	ttl := c.ttl.Milliseconds()
	var reply any
	var err error
	switch {
	case first && c.plain():
		return n.tryClaim(ctx, c)
	case c.fifo:
		reply, err = n.run(ctx, c, &scripts.fifo, scriptArgs(c.keys(), c.owner, ttl, c.reserve, stay, n.publish))
	case c.read:
		reply, err = n.run(ctx, c, &scripts.read, scriptArgs(c.keys(), c.owner, ttl, stay))
	default:
		reply, err = n.run(ctx, c, &scripts.acquire, scriptArgs(c.keys(), c.owner, ttl, c.reserve, stay, flag(!first)))
	}
	c.queued.Store(c.waits)
	status, value, err := pairReply(reply, err)
	switch {
	case err != nil:
		return grant{}, err
	case status == 1:
		return grant{token: value}, nil
	case status == 0:
		return grant{left: time.Duration(value) * time.Millisecond}, nil
	default:
		return grant{gaveUp: true}, nil
	}
}

// tryClaim is the first try of a claim on one lock.
func (n *lockNode) tryClaim(ctx context.Context, c *claim) (grant, error) {
	value, err := intReply(n.run(ctx, c, &scripts.take, []any{
		nil, nil, 3, c.gone(), c.locks[0], c.naming.key("fence:", c.names[0]), c.owner, c.ttl.Milliseconds(), c.reserve + 1,
	}))
	switch {
	case err != nil:
		return grant{}, err
	case value < 0:
		return grant{left: time.Duration(-1-value) * time.Millisecond}, nil
	default:
		return grant{token: value, gaveUp: value == 0}, nil
	}
}

func (n *lockNode) verdict(ctx context.Context, ask asking) (int64, error) { return ask(ctx, n) }

// renewing renews a claim, and raises its fences to at least floor.
func renewing(c *claim, floor int64) asking {
	return func(ctx context.Context, n *lockNode) (int64, error) { return n.renew(ctx, c, floor) }
}

func (n *lockNode) renew(ctx context.Context, c *claim, floor int64) (int64, error) {
	reply, err := n.run(ctx, nil, &scripts.renew, scriptArgs(c.fenced(), c.owner, c.ttl.Milliseconds(), floor))
	if why, ok := reply.(string); ok && err == nil {
		c.forced.Store(&why)
		return renewForced, nil
	}
	return intReply(reply, err)
}

func (n *lockNode) release(ctx context.Context, c *claim, used int64) (freeing, error) {
	if !c.queued.Load() && !c.unsettled.Load() && used == 0 && c.plain() {
		return n.give(ctx, c)
	}
	gone := int64(0)
	if c.unsettled.Load() {
		gone = tombstone(c.ttl).Milliseconds()
	}
	freed, told, err := pairReply(n.run(ctx, nil, &scripts.release, scriptArgs(c.keys(), c.owner, gone, used, n.publish, flag(c.queued.Load()), flag(c.fifo))))
	if err != nil {
		return freeing{}, err
	}
	return freeing{freed: freed == int64(len(c.names)), others: n.others(c, told)}, nil
}

// tombstone is how long an owner's tombstone stays.
func tombstone(ttl time.Duration) time.Duration { return max(ttl, 30*time.Second) }

// give releases what take took, if nothing went wrong in between.
func (n *lockNode) give(ctx context.Context, c *claim) (freeing, error) {
	value, err := intReply(n.run(ctx, nil, &scripts.give, []any{
		nil, nil, 2, c.locks[0], c.naming.key("bell:", c.names[0]), c.owner, n.publish,
	}))
	return freeing{freed: value > 0, others: n.others(c, value-1)}, err
}

// others reports whether another client was told of a release.
func (n *lockNode) others(c *claim, told int64) bool {
	return told > 0 && (n.hubs == nil || told > n.hubs.listening(c.locks))
}

// downgrade turns the claim, which must be of one lock, into a reader's.
func (n *lockNode) downgrade(ctx context.Context, c *claim) (int64, error) {
	return intReply(n.run(ctx, c, &scripts.downgrade,
		scriptArgs([]string{c.gone(), c.locks[0]}, c.owner, "r"+c.owner[1:], c.ttl.Milliseconds(), n.publish)))
}

func (n *lockNode) close() {
	if n.hubs != nil {
		n.hubs.close()
	}
	n.wire.close()
}

// run runs a script, as [lockWire.call] does. takes is the claim whose locks it may take; nil for none.
func (n *lockNode) run(ctx context.Context, takes *claim, s *lockScript, args []any) (any, error) {
	reply, sent, err := n.wire.call(ctx, s, args)
	if sent && takes != nil {
		takes.unsettled.Store(true)
	}
	return reply, err
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// intReply returns the integer that a script has replied, unless its call has failed with err.
func intReply(reply any, err error) (int64, error) {
	n, ok := reply.(int64)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %T, want an integer", errUnexpected, reply)
	}
	return n, err
}

// pairReply is intReply for two integers.
func pairReply(reply any, err error) (a, b int64, _ error) {
	values, ok := reply.([]any)
	if err != nil || !ok || len(values) != 2 {
		return 0, 0, cmp.Or(err, fmt.Errorf("%w: %v, want two integers", errUnexpected, reply))
	}
	a, err = intReply(values[0], nil)
	b, err = intReply(values[1], err)
	return a, b, err
}

// passing says whether a failed call may succeed when repeated: anything but
// a refusal that is not of a passing state of the server.
func passing(err error) bool {
	answer, refused := errors.AsType[redis.Error](err)
	return !refused || slices.ContainsFunc(
		[]string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "NOSCRIPT", "BUSY"},
		func(state string) bool { return strings.HasPrefix(answer.Error(), state) })
}
