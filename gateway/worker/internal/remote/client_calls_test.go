package remote

import (
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/lease"
)

// calling sends a call about h, to the worker that has confirmed it last or to the owner.
func (w *world) calling(c *caller, h *holding, k kind, toOwner bool) {
	o := &call{caller: c, id: h.id, kind: k, sent: w.now, key: "k", shared: h.shared, token: h.token, at: -1, to: h.peer, owner: toOwner}
	w.calls = append(w.calls, o)
}

// target is the worker to which a call of a client goes.
func (c *call) target() int {
	if c.owner && !c.lost {
		return c.caller.client.table
	}
	return c.to
}

// lose has nobody wait for a call of a client.
func (c *call) lose() {
	if c.stage == sent {
		c.to = c.target()
	}
	c.lost = true
}

// taker is the worker that may have taken a call.
func (c *call) taker() int {
	if c.at >= 0 {
		return c.at
	}
	return c.target()
}

// takes reports whether a worker takes a call that was sent.
func (w *world) takes(c *call) bool {
	x := w.workers[c.target()]
	return x.up && (x.machine.open || !c.owner)
}

// callActions appends what can happen to a call of a client next, but for what its worker does.
func (w *world) callActions(i int, c *call, add func(e event, a, b int)) {
	k := c.caller.client
	switch {
	case k.quick:
		return
	case c.stage == sent && w.takes(c):
		add(evDeliver, i, c.target())
	case c.stage == sent && !c.owner && !c.lost && !w.workers[c.to].up && !k.stopped:
		add(evVain, i, 0)
	case c.lost && c.kind == acquire && !c.gone && (c.stage == queued || c.stage == retrying || c.stage == storing):
		add(evLeft, i, 0)
	}
	if c.lost || k.stopped {
		return
	}
	if c.stage == answered {
		add(evHear, i, 0)
	}
	if c.stage != sent || w.takes(c) {
		add(evLose, i, 0)
		if c.kind != acquire && (c.owner || c.kind == release) {
			add(evGiveUp, i, 0)
		}
	}
}

// serve has a worker take a call of a client.
func (w *world) serve(c *call, x *worker) {
	c.at, c.stage = x.slot, answered
	_, vouch := x.vouch()
	switch c.kind {
	case acquire:
		w.enter(c, x)
	case renew:
		c.answer.grant.token = c.token
		c.answer.promise.Cancel, c.answer.promise.Surrender = x.vouch()
		if c.answer.what = x.machine.Renew(x.at(), c.id, c.token, vouch > 0); c.answer.what == holder.Held {
			l := x.machine.byID[c.id]
			w.limit(l, l.Lease)
		}
	case extend:
		c.lock = &Lock{ID: c.id}
		c.stage = granted
		w.finish(c, x)
	case release:
		what, removed := x.machine.Release(x.at(), c.id, c.token, vouch > 0)
		if what != holder.Elsewhere {
			w.final(c.id, 0)
		}
		if c.answer.what = what; what == holder.Held {
			for i := range c.caller.client.holds {
				h := &c.caller.client.holds[i]
				if h.id != c.id {
					continue
				}
				if h.token != 0 && !h.released && w.seen.token > h.lock.Token() {
					w.fail("L: %s says that client %d had token %s up to now, after %s", x.name(), c.caller.slot, tokenText(h.lock.Token()), tokenText(w.seen.token))
				}
				if !h.released && removed == nil {
					h.sure = w.now + ttl
				}
				h.released = true
			}
		}
		if removed != nil {
			c.stage, c.back = storing, removed
		}
	}
	w.say("%s: %v: %s", x.name(), c, w.words(c))
}

// isRefused reports whether an answer says that another worker is to be asked.
func (c *call) isRefused() bool {
	return c.kind == acquire && !c.answer.ok || c.owner && c.answer.what == holder.Elsewhere && !c.answer.freed && !c.answer.ok
}

// receive lets a client have an answer.
func (w *world) receive(o *call) {
	c := o.caller
	k := c.client
	if o.isRefused() {
		w.learn(c, w.part.owner)
		w.calls = append(w.calls, o.again(w.now))
		return
	}
	now, asked, a := w.instant(), lease.Instant{Mono: o.sent, Wall: o.sent}, &o.answer
	grant := holder.Grant{Promise: a.promise, Token: a.grant.token, Lease: a.lease, Next: a.next, Turns: a.turns}
	if o.kind == acquire {
		k.asks, k.unsure = false, nil
		k.holds = append(k.holds, holding{lock: holder.New(&policy, asked, grant), id: o.id, token: a.grant.token, shared: o.shared, peer: o.at})
		w.confirm(c, &k.holds[len(k.holds)-1])
		return
	}
	h := k.holdOf(o)
	if o.owner && o.kind != release && h.lock.HasCaller() && (o.kind == renew || a.ok) {
		h.peer = o.at
	}
	says := a.what
	if a.freed {
		says = holder.Released
	}
	switch o.kind {
	case renew:
		w.let(c, h, "renewed", func(l *holder.Lock) holder.Decision { return l.Renewed(now, asked, says, a.promise) })
		w.confirm(c, k.find(o.id))
		w.tickClient(c) // it looks at its locks again soon
	case extend:
		if a.ok {
			w.let(c, h, "extended", func(l *holder.Lock) holder.Decision { return l.Extended(now, asked, grant, o.repeated) })
		}
		h.lock.Unextended()
		if !a.ok {
			w.let(c, h, "lose", func(l *holder.Lock) holder.Decision { return l.Lose() })
		}
	case release:
		w.let(c, h, "answered", func(l *holder.Lock) holder.Decision { return l.Answered(w.instant(), says, o.repeated) })
	}
}

// holdOf returns the lock that a call is about.
func (k *client) holdOf(o *call) *holding {
	for i := range k.holds {
		if h := &k.holds[i]; h.id == o.id && (h.token != 0 || h.peer == o.to) {
			return h
		}
	}
	return nil
}

// again returns another attempt of a call to the owner.
func (c *call) again(now time.Duration) *call {
	return &call{
		caller: c.caller, id: c.id, kind: c.kind, number: c.number, sent: now, key: c.key, shared: c.shared, token: c.token, lease: c.lease, turns: c.turns,
		at: -1, to: c.to, owner: true, repeated: c.repeated,
	}
}

// fails ends a call of a client without an answer. started says that a worker may have taken it; giveUp that it is not
// made again.
func (w *world) fails(o *call, started, giveUp bool) {
	c := o.caller
	k := c.client
	h, away := k.holdOf(o), !o.owner && k.table != o.to
	if k.faults = k.faults || started; o.owner && !giveUp {
		if o.kind == acquire {
			k.unsure = append(k.unsure, o.taker())
		}
		again := o.again(w.now)
		again.repeated = true
		o.lose()
		w.calls = append(w.calls, again)
		return
	}
	o.lose()
	repeated := started || o.repeated
	switch o.kind {
	case renew:
		w.let(c, h, "failed", func(l *holder.Lock) holder.Decision { l.Failed(away); return holder.Wait })
		w.confirm(c, h)
		w.tickClient(c)
	case extend:
		h.lock.Unextended()
	case release:
		w.let(c, h, "unanswered", func(l *holder.Lock) holder.Decision {
			d := l.Unanswered(repeated, away)
			if d == holder.Release && (o.owner || giveUp) {
				d = l.GiveUp(w.instant(), k.closed)
			}
			return d
		})
	}
}
