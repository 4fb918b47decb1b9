package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/wake"
)

// hubLinger is between two sweeps. For so long a channel that nobody listens to stays subscribed, at most.
const hubLinger = 5 * time.Second

// lockBell rings when a waiter should try again. It may ring for nothing. The zero bell never rings.
type lockBell struct {
	C     chan struct{} // 1 buffered: a ring that finds it full is not needed; nil until it listens
	owner string
	hubs  *lockHubs // nil if the waiter polls
	locks []string
	at    []*lockHub // by lock: which listens to it; nil if the server is not known
}

// listen has the bell ring for an owner's claim. It rings as soon as releases can be
// heard, so that none is missed between the try before and the wait after.
func (b *lockBell) listen(owner string) {
	b.C, b.owner, b.at = make(chan struct{}, 1), owner, make([]*lockHub, len(b.locks))
	b.follow()
}

// follow makes a bell that listens do so where the locks are now.
func (b *lockBell) follow() {
	if b.C == nil || b.hubs == nil || b.at[0] != nil && b.hubs.cluster == nil {
		return
	}
	for i, lock := range b.locks {
		if h := b.hubs.hub(lock); h != b.at[i] {
			h.add(b, lock)
			b.at[i].remove(b, lock)
			b.at[i] = h
		}
	}
}

func (b *lockBell) close() {
	for i, h := range b.at {
		h.remove(b, b.locks[i])
	}
}

// lockHubs has one hub per server: one, except in a cluster.
type lockHubs struct {
	l       *Locker // whose waiters they serve; its Close ends them
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil for one server

	mu   sync.Mutex
	hubs map[string]*lockHub // by the server's address
}

// hub returns the hub of the server that has the lock, or nil if that is unknown: waiters then
// poll.
func (hs *lockHubs) hub(lock string) *lockHub {
	addr, open, subscribe, unsubscribe := "", hs.client.Subscribe, (*redis.PubSub).Subscribe, (*redis.PubSub).Unsubscribe
	if hs.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		node, err := hs.cluster.MasterForKey(ctx, lock)
		if err != nil {
			return nil
		}
		addr, open, subscribe, unsubscribe = node.Options().Addr, node.SSubscribe, (*redis.PubSub).SSubscribe, (*redis.PubSub).SUnsubscribe
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.hubs[addr]
	if h == nil {
		h = &lockHub{ctx: hs.l.ctx, sharded: hs.cluster != nil, open: open, subscribe: subscribe, unsubscribe: unsubscribe, changed: make(chan struct{}, 1), topics: map[string]*lockTopic{}}
		hs.l.spawn(h.run)
		hs.hubs[addr] = h
	}
	return h
}

// listening is the number of connections of ours that hear of the locks'
// releases.
func (hs *lockHubs) listening(locks []string) int64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.hubs {
		if slices.ContainsFunc(locks, h.hears) {
			return 1
		}
	}
	return 0
}

// lockHub shares one subscription connection among the waiters of a server, which run uses alone.
// mu guards the topics: waiters add them, and pending drops them.
type lockHub struct {
	open                   func(ctx context.Context, channels ...string) *redis.PubSub
	subscribe, unsubscribe func(ps *redis.PubSub, ctx context.Context, channels ...string) error
	ctx                    context.Context
	sharded                bool          // in a cluster
	changed                chan struct{} // 1 buffered: topics differ from what is subscribed

	mu     sync.Mutex
	topics map[string]*lockTopic
}

// lockTopic is a channel of a hub.
type lockTopic struct {
	bells map[*lockBell]struct{}
	asked bool // subscribing was asked for
	heard bool // the server has confirmed it, at least once
}

// add has the bell ring for a channel. No hub does nothing.
func (h *lockHub) add(b *lockBell, channel string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil {
		t = &lockTopic{bells: map[*lockBell]struct{}{}}
		h.topics[channel] = t
	}
	t.bells[b] = struct{}{}
	if t.heard {
		wake.Up(b.C)
	}
	if !t.asked {
		wake.Up(h.changed)
	}
}

func (h *lockHub) remove(b *lockBell, channel string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[channel]; t != nil {
		delete(t.bells, b)
	}
}

func (h *lockHub) hears(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	return t != nil && t.heard
}

// run has a connection. When it ends, go-redis makes another and subscribes again, and the server then confirms each
// channel anew.
func (h *lockHub) run() {
	ps := h.open(h.ctx)
	defer ps.Close()
	messages := ps.ChannelWithSubscriptions()
	sweep := time.NewTicker(hubLinger)
	defer sweep.Stop()
	for h.update(ps, false); ; {
		select {
		case m := <-messages:
			h.receive(m)
		case <-h.changed:
			h.update(ps, false)
		case <-sweep.C:
			h.update(ps, true)
		case <-h.ctx.Done():
			return
		}
	}
}

// update makes the server's view follow topics. If a write fails, go-redis makes it up on the next connection.
func (h *lockHub) update(ps *redis.PubSub, sweeps bool) {
	wanted, unwanted := h.pending(sweeps)
	if len(unwanted) > 0 {
		_ = h.unsubscribe(ps, h.ctx, unwanted...)
	}
	for _, channel := range wanted { // one by one: in a cluster each is in its own slot
		_ = h.subscribe(ps, h.ctx, channel)
	}
}

// pending returns the channels to subscribe to. If it sweeps, it drops channels that have no listener, and returns them
// too. In a cluster it then asks for all others again: on a new connection go-redis asks for all in one command, which is
// refused if they are in several slots.
func (h *lockHub) pending(sweeps bool) (wanted, unwanted []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel, t := range h.topics {
		switch {
		case sweeps && len(t.bells) == 0:
			unwanted = append(unwanted, channel)
			delete(h.topics, channel)
		case !t.asked || sweeps && h.sharded:
			t.asked = true
			wanted = append(wanted, channel)
		}
	}
	return wanted, unwanted
}

// receive takes a message, or the confirmation of a channel: messages published before that were not received.
func (h *lockHub) receive(m any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := m.(type) {
	case *redis.Message:
		if t := h.topics[m.Channel]; t != nil {
			t.ringLocked(m.Payload)
		}
	case *redis.Subscription:
		if t := h.topics[m.Channel]; t != nil {
			t.heard = m.Kind == "subscribe" || m.Kind == "ssubscribe"
			t.ringLocked("")
		}
	}
}

// ringLocked wakes the next owner, or all waiters if next is "".
func (t *lockTopic) ringLocked(next string) {
	for b := range t.bells {
		if next == "" || next == b.owner {
			wake.Up(b.C)
		}
	}
}
