package gossip

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

// Routers of a cluster must take one key from each request, workers with a public door among them.
// Each announces its key sources, and since when they are in force. New sources are first announced
// as not in force, and then every other router is asked. If two routers change at one moment, at least one of them thus sees the
// other's sources. Routers that cannot see each other may still come to differ. When they meet, the
// router whose sources came in force later must send no requests, see [ring.View.KeyConflict].
// Their clocks need not agree for that: both compare the same two numbers.

// keys are the Settings.KeySource of a router, as it announces it. Members that take no requests
// from clients have the zero value.
type keys struct {
	source string
	since  int64 // when it came in force, in Unix milliseconds, or notInForce
}

// notInForce is later than all times.
const notInForce = math.MaxInt64

// before reports whether k comes before o if the two do not agree.
func (k keys) before(o keys) bool {
	return k.since < o.since || k.since == o.since && k.source < o.source
}

// difference returns how the keys of a peer do not agree with k.
func (k keys) difference(of keys) (d ring.Difference, differ bool) {
	return ring.Settings{KeySource: k.source}.Compare(ring.Settings{KeySource: of.source})
}

// Limits on asking the other routers.
const (
	askPatience   = 5 * time.Second
	firstPatience = 30 * time.Second // of a member without key sources: a dead router is lost sooner
	askAgain      = 250 * time.Millisecond
)

// AnnounceKeySource changes the KeySource of a router's Settings, if every other router agrees. If
// one does not, or cannot be asked for 5 s (30 s if there was no KeySource), or the Cluster is closed meanwhile, nothing changes.
// The error wraps [ErrRefused], unless the Cluster was closed.
func (c *Cluster) AnnounceKeySource(source string) error {
	c.announcing.Lock()
	defer c.announcing.Unlock()
	source = shortKeySource(source)
	if err := c.askOwner(func(o *owner) error { return o.propose(source) }); err != nil {
		return err
	}
	if err := c.askRouters(); err != nil {
		return errors.Join(err, c.askOwner(func(o *owner) error { o.withdraw(); return nil }))
	}
	return c.askOwner((*owner).settleKeys)
}

// askRouters exchanges all news with each other router.
func (c *Cluster) askRouters() error {
	patience := askPatience
	if c.Settings().KeySource == "" {
		patience = firstPatience
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	var routers []ring.Member
	if err := c.askOwner(func(o *owner) error { routers = o.routers(); return nil }); err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make([]error, len(routers))
	for i, m := range routers {
		all.Go(func() { failed[i] = c.askRouter(ctx, m) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// routers returns the other members that take requests from clients, or may.
func (o *owner) routers() (all []ring.Member) {
	o.catchUp()
	for _, p := range o.peers {
		if p.Role == ring.RoleRouter || p.keys.source != "" {
			all = append(all, p.Member)
		}
	}
	return all
}

// askRouter exchanges all news with m, unless m goes meanwhile.
func (c *Cluster) askRouter(ctx context.Context, m ring.Member) error {
	for {
		_, err := c.list.Join([]string{m.Gossip})
		if err == nil || !c.sees(m) {
			return nil
		}
		if !wake.Sleep(askAgain, ctx.Done()) {
			return fmt.Errorf("%w: router %q (%s) does not answer whether it uses the same key source: try again when it answers or has left: %w", ErrRefused, m.Name, m.Gossip, explain(m.Gossip, err))
		}
	}
}

func (c *Cluster) sees(m ring.Member) bool {
	return slices.ContainsFunc(c.View().Members, func(other ring.Member) bool { return other.Name == m.Name && other.Gossip == m.Gossip })
}

// propose announces keys that are not in force.
func (o *owner) propose(source string) error {
	o.catchUp()
	next := keys{source, notInForce}
	if _, err := newMetadata(o.self, next, o.c.settings, o.version).encode(); err != nil {
		return err
	}
	o.announced = next
	o.spread()
	return nil
}

// withdraw announces the keys in force again.
func (o *owner) withdraw() {
	o.announced = o.inForce
	o.spread()
}

// settleKeys puts the keys that are announced in force, unless those of a peer do not agree.
func (o *owner) settleKeys() error {
	o.catchUp()
	if o.announced.source == "" {
		return nil
	}
	for _, p := range o.peers {
		if d, differ := o.announced.difference(p.keys); differ {
			o.withdraw()
			return refusal(d, o.self, p.Member)
		}
	}
	o.announced.since = time.Now().UnixMilli()
	for _, p := range o.peers {
		if p.keys.since != notInForce {
			o.announced.since = max(o.announced.since, p.keys.since+1)
		}
	}
	o.inForce = o.announced
	o.publish()
	o.spread()
	return nil
}

// keyConflict returns the value of View.KeyConflict.
func (o *owner) keyConflict() error {
	var first *peer // of those that do not agree, so that the text stays
	var how ring.Difference
	for _, p := range o.peers {
		if d, differ := o.inForce.difference(p.keys); differ && p.keys.before(o.inForce) && (first == nil || p.keys.before(first.keys)) {
			first, how = &p, d
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%w: this router sends no requests, since an older router uses another key source: %w; restart this one with the same",
		ring.ErrSettings, refusal(how, o.self, first.Member))
}

// warnOfKeys says which routers take keys from elsewhere, if any is to send no requests.
func (o *owner) warnOfKeys(now time.Time) {
	if err := o.c.View().KeyConflict; err != nil && o.throttle.pass(err.Error(), now) {
		o.c.log.Error("this router sends no requests", "error", err)
	}
	for _, p := range o.peers {
		if d, differ := o.inForce.difference(p.keys); differ && o.inForce.before(p.keys) {
			if err := refusal(d, o.self, p.Member); o.throttle.pass(err.Error(), now) {
				o.c.log.Error("another router uses another key source: it must send no requests", "error", err)
			}
		}
	}
}
