package lock

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/wake"
)

const (
	hubSilence = 2 * time.Second        // without a byte, after which the connection is tried
	hubLinger  = 5 * time.Second        // for which a channel nobody listens to stays subscribed
	hubPause   = 100 * time.Millisecond // after the connection failed twice in a row
)

// lockBell rings when a waiter should try again. It may ring for nothing.
type lockBell struct {
	C     chan struct{} // 1 buffered: a ring that finds it full is not needed
	owner string
	hubs  *lockHubs
	at    map[*lockHub][]string // channels listened to
	locks []string
}

// lockHubs has one hub per server: one, except in a cluster.
type lockHubs struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient

	mu     sync.Mutex
	hubs   map[string]*lockHub // by the server's address
	closed bool
}

func newLockHubs(client redis.UniversalClient) *lockHubs {
	cluster, _ := client.(*redis.ClusterClient)
	return &lockHubs{client: client, cluster: cluster, hubs: map[string]*lockHub{}}
}

// listen makes a bell for the claim. It rings as soon as releases can be
// heard, so that none is missed between the try before and the wait after.
func (hs *lockHubs) listen(c *claim) *lockBell {
	b := &lockBell{C: make(chan struct{}, 1), owner: c.owner, hubs: hs, at: map[*lockHub][]string{}, locks: c.locks}
	b.follow()
	return b
}

// follow makes the bell listen where the locks are now.
func (b *lockBell) follow() {
	if len(b.at) > 0 && b.hubs.cluster == nil {
		return
	}
	at := map[*lockHub][]string{}
	for _, lock := range b.locks {
		if h := b.hubs.hub(lock); h != nil {
			at[h] = append(at[h], lock)
		}
	}
	for h, channels := range at {
		if b.at[h] == nil {
			h.add(b, channels)
		}
	}
	for h, channels := range b.at {
		if at[h] == nil {
			h.remove(b, channels)
		}
	}
	b.at = at
}

func (b *lockBell) close() {
	for h, channels := range b.at {
		h.remove(b, channels)
	}
}

// hub returns the hub of the server that has the lock, or nil if that is unknown: waiters then
// poll.
func (hs *lockHubs) hub(lock string) *lockHub {
	addr, subscribe := "", hs.client.Subscribe
	if hs.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		node, err := hs.cluster.MasterForKey(ctx, lock)
		if err != nil {
			return nil
		}
		addr, subscribe = node.Options().Addr, node.SSubscribe
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.closed {
		return nil
	}
	h := hs.hubs[addr]
	if h == nil {
		h = startLockHub(subscribe, hs.cluster != nil)
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

func (hs *lockHubs) close() {
	hs.mu.Lock()
	hs.closed = true
	hubs := hs.hubs
	hs.mu.Unlock()
	for _, h := range hubs {
		h.close()
	}
}

// lockHub shares one subscription connection among the waiters of a server. One goroutine reads,
// another subscribes and unsubscribes. mu guards the topics: waiters add them, and pending drops
// them.
type lockHub struct {
	open    func(ctx context.Context, channels ...string) *redis.PubSub
	sharded bool
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	changed chan struct{} // 1 buffered: wanted differs from what is subscribed; wakes the goroutine that subscribes

	mu     sync.Mutex
	pubsub *redis.PubSub // nil until there is a first channel
	topics map[string]*lockTopic
}

// lockTopic is a channel of a hub.
type lockTopic struct {
	bells map[*lockBell]struct{}
	asked bool      // subscribing was asked for
	heard bool      // the server has confirmed it
	idle  time.Time // since when there is no bell
}

func startLockHub(open func(context.Context, ...string) *redis.PubSub, sharded bool) *lockHub {
	h := &lockHub{open: open, sharded: sharded, changed: make(chan struct{}, 1), topics: map[string]*lockTopic{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.running.Go(h.subscribe)
	return h
}

func (h *lockHub) close() {
	h.stop()
	h.mu.Lock()
	if h.pubsub != nil {
		_ = h.pubsub.Close() // ends a blocked read
	}
	h.mu.Unlock()
	h.running.Wait()
}

func (h *lockHub) add(b *lockBell, channels []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range channels {
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
}

func (h *lockHub) remove(b *lockBell, channels []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range channels {
		if t := h.topics[channel]; t != nil {
			delete(t.bells, b)
			if len(t.bells) == 0 {
				t.idle = time.Now()
			}
		}
	}
}

func (h *lockHub) hears(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	return t != nil && t.heard
}

// subscribe makes the server's view follow topics until the hub is closed.
func (h *lockHub) subscribe() {
	sweep := time.NewTicker(hubLinger)
	defer sweep.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.changed:
		case <-sweep.C:
		}
		wanted, unwanted := h.pending()
		ps := h.connection(len(wanted) > 0)
		if ps == nil {
			continue
		}
		// A failure to write is the reader's to see: the connection is then
		// made anew with all channels.
		if len(unwanted) > 0 {
			_ = h.pick(ps.Unsubscribe, ps.SUnsubscribe)(h.ctx, unwanted...)
		}
		for _, channel := range wanted { // one by one: in a cluster each is in its own slot
			_ = h.pick(ps.Subscribe, ps.SSubscribe)(h.ctx, channel)
		}
	}
}

func (h *lockHub) pick(plain, sharded func(context.Context, ...string) error) func(context.Context, ...string) error {
	if h.sharded {
		return sharded
	}
	return plain
}

// pending returns the channels to subscribe to. It drops channels that have had no listener for a
// while, and returns them too.
func (h *lockHub) pending() (wanted, unwanted []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel, t := range h.topics {
		switch {
		case len(t.bells) == 0 && time.Since(t.idle) > hubLinger:
			unwanted = append(unwanted, channel)
			delete(h.topics, channel)
		case !t.asked:
			t.asked = true
			wanted = append(wanted, channel)
		}
	}
	return wanted, unwanted
}

// connection returns the connection, which it may create together with its
// reader.
func (h *lockHub) connection(create bool) *redis.PubSub {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pubsub == nil && create && h.ctx.Err() == nil {
		h.pubsub = h.open(h.ctx)
		ps := h.pubsub
		h.running.Go(func() { h.read(ps) })
	}
	return h.pubsub
}

// read passes on what the server says. go-redis connects and subscribes again
// by itself after a failure, and the server confirms each channel anew.
func (h *lockHub) read(ps *redis.PubSub) {
	silent, failed := false, false
	for h.ctx.Err() == nil {
		m, err := ps.ReceiveTimeout(h.ctx, hubSilence)
		if err == nil {
			silent, failed = false, false
			h.receive(m)
			continue
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !silent {
			silent = true
			_ = ps.Ping(h.ctx) // a failure shows in the next read
			continue
		}
		h.lost()
		if silent {
			h.replace(ps)
			return
		}
		if failed {
			wake.Sleep(hubPause, h.ctx.Done())
		}
		failed = true
	}
}

func (h *lockHub) receive(m any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := m.(type) {
	case *redis.Message:
		if t := h.topics[m.Channel]; t != nil {
			t.ringLocked(m.Payload)
		}
	case *redis.Subscription:
		t := h.topics[m.Channel]
		if t == nil {
			return
		}
		t.heard = m.Kind == "subscribe" || m.Kind == "ssubscribe"
		t.ringLocked("")
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

// lost wakes all waiters, since messages published meanwhile were not received.
func (h *lockHub) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.heard = false
		t.ringLocked("")
	}
}

// replace drops a connection that has gone silent; a new one is made with
// the channels wanted now.
func (h *lockHub) replace(ps *redis.PubSub) {
	_ = ps.Close()
	h.mu.Lock()
	h.pubsub = nil
	for _, t := range h.topics {
		t.asked = false
	}
	h.mu.Unlock()
	wake.Up(h.changed)
}
