package keytable

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
)

// FuzzTable makes a sequence of calls and holds a table, after each of them,
// to a model that is slow and plain.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 2, 2})
	f.Add([]byte{0, 0, 8, 8, 3, 4, 2, 5, 0, 10, 13, 2})
	f.Add([]byte{4, 61, 0, 8, 16, 0, 6, 14, 22, 2, 10, 18})
	f.Add([]byte{4, 5, 0, 2, 0, 2, 0, 2, 0, 0, 8, 16, 7, 2})
	f.Add([]byte{0, 0, 0, 0, 0, 8, 8, 8, 3, 11, 19, 2})
	f.Add([]byte{1, 1, 1, 26, 50, 50, 2})
	f.Add([]byte{0, 1, 0, 1, 26, 50, 2, 26, 3, 2, 50})
	f.Add([]byte{0, 1, 4, 26, 5, 1, 26, 2, 50})
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		calls := make([]byte, 100)
		for i := range calls {
			calls[i] = byte(random.Uint32())
		}
		f.Add(calls)
	}
	f.Fuzz(func(t *testing.T, calls []byte) {
		synctest.Test(t, func(t *testing.T) {
			p := &pair{t: t, table: Table{Queue: &Queue{PerKey: 3, Total: 6}}, turns: turns{since: map[turn]int{}}}
			for _, call := range calls[:min(len(calls), 200)] {
				p.call(int(call%8), int(call/8))
				p.compare()
			}
			p.finish()
		})
	})
}

var fuzzKeys = []string{"a", "b", "c"}

// pair is a table and its model.
type pair struct {
	t         *testing.T
	table     Table
	requests  []*request // all that wait or hold, or were taken along
	along     []*request // taken along and not finished
	turns     turns
	closed    bool
	minted    int64
	installed int64 // the last token of another table: all are lower than those minted here
	limit     int64
	blocked   []string
	floor     int64 // minted before this call
}

// request is a call of LockWait: what the model says of it and what came
// of it.
type request struct {
	place
	item   *Item
	cancel context.CancelFunc
	holds  bool
	listed bool
	remote bool
	taken  bool  // along, and not finished
	ends   bool  // without an error, since it was finished
	want   error // if it is to fail

	returned, seen bool
	token          int64
	err            error
}

func (p *pair) holder(key string) *request {
	for _, r := range p.requests {
		if r.key == key && r.holds {
			return r
		}
	}
	return nil
}

// queue returns those who wait for a key, for any if that is empty, in the order in
// which they are to get it.
func (p *pair) queue(key string) (queue []*request) {
	for _, r := range p.requests {
		if (r.key == key || key == "") && !r.holds && !r.taken && !r.ends && r.want == nil {
			queue = append(queue, r)
		}
	}
	return inTurn(&p.turns, queue)
}

func (p *pair) tokens() bool { return p.limit == 0 || p.minted+1 < p.limit }

// call makes one call on both.
func (p *pair) call(what, arg int) {
	key := fuzzKeys[arg%len(fuzzKeys)]
	p.floor = p.minted
	switch what {
	case 0:
		p.lock(key, nil, arg/3%3)
	case 1:
		p.lock(key, new(Item), arg/3%3)
	case 2:
		r := p.holder(key)
		switch {
		case arg/3%3 == 2:
			p.finishItem()
		case r != nil && arg/3%3 == 1:
			p.take(r, arg/9)
		case r != nil:
			p.unlock(r)
		}
	case 3:
		queue := p.queue("")
		for _, r := range p.requests {
			if r.taken && r.want == nil {
				queue = append(queue, r)
			}
		}
		if len(queue) > 0 {
			r := queue[arg%len(queue)]
			r.want = context.Canceled
			r.cancel()
		}
	case 4:
		p.close()
	case 5:
		if p.closed {
			p.install(key)
		}
		p.open(arg)
	case 6:
		if r := p.holder(key); r != nil && r.seen && arg/3%2 == 1 {
			if listed := p.table.SetRemote(key, r.token); listed != r.listed {
				p.t.Fatalf("SetRemote(%q): listed %v, want %v", key, listed, r.listed)
			}
			r.remote = r.remote || !r.listed
			return
		}
		p.table.Unblock(key)
		p.blocked = slices.DeleteFunc(p.blocked, func(k string) bool { return k == key })
	case 7:
		if arg%2 == 0 {
			p.tryLock(key)
		} else {
			p.table.Advance(p.minted+2, p.minted+6)
			if !p.closed {
				p.raise(p.minted+2, p.minted+6)
			}
		}
	}
	for _, key := range fuzzKeys {
		queue := p.queue(key)
		if len(queue) > 0 && p.holder(key) == nil && !slices.Contains(p.blocked, key) && p.tokens() {
			queue[0].holds = true
			p.turns.had(&queue[0].place)
			p.minted++
		}
	}
}

func (p *pair) lock(key string, item *Item, client int) {
	ctx, cancel := context.WithCancel(p.t.Context())
	r := &request{place: place{key: key, client: uint64(client)}, item: item, cancel: cancel}
	go func() {
		if item != nil {
			item.Value = r
		}
		r.token, r.err = p.table.LockWait(ctx, key, Wait{Client: r.client, Item: item})
		r.returned = true
	}()
	synctest.Wait()
	here := p.queue(key)
	idle := p.holder(key) == nil && len(here) == 0 && !slices.Contains(p.blocked, key)
	switch {
	case p.closed:
		r.want = ErrClosed
	case idle && p.tokens():
	case overfull(p.table.Queue, r, p.queue("")):
		r.want = ErrQueueFull
	case len(here) == p.table.Queue.PerKey:
		if gives, ok := givesWay(&p.turns, r, here); ok {
			gives.want = ErrQueueFull
		} else {
			r.want = ErrQueueFull
		}
	}
	come(&p.turns, r, p.queue(key))
	p.requests = append(p.requests, r)
}

// take takes up to two items along, all for 0, after the first has been left in
// its place where most is 3.
func (p *pair) take(holder *request, most int) {
	queue := p.queue(holder.key)
	if i := slices.IndexFunc(queue, func(r *request) bool { return r.item == nil }); i >= 0 {
		queue = queue[:i]
	}
	if most == 3 && len(queue) > 0 {
		queue = queue[1:]
	} else if most > 0 && most < 3 {
		queue = queue[:min(most, len(queue))]
	}
	if holder.listed {
		queue = nil
	}
	var got []*request
	offered := 0
	p.table.Take(holder.key, holder.token, func(i *Item) (take, more bool) {
		if offered++; most == 3 && offered == 1 {
			return false, true
		}
		got = append(got, i.Value.(*request))
		return true, most == 0 || most == 3 || len(got) < most
	})
	if !slices.Equal(got, queue) {
		p.t.Fatalf("Take of %q took %d items, want %d, or in another order", holder.key, len(got), len(queue))
	}
	for _, r := range got {
		r.taken = true
		p.turns.had(&r.place)
		p.along = append(p.along, r)
	}
}

// finishItem finishes one of the items that were taken along, also after its caller
// has left.
func (p *pair) finishItem() {
	if len(p.along) == 0 {
		return
	}
	r := p.along[0]
	p.along = p.along[1:]
	r.item.Finish()
	r.taken, r.ends = false, r.want == nil
}

func (p *pair) tryLock(key string) {
	token, err := p.table.TryLock(key)
	var want error
	switch {
	case p.closed:
		want = ErrClosed
	case p.holder(key) != nil || slices.Contains(p.blocked, key):
		want = ErrLocked
	case !p.tokens():
		want = ErrExhausted
	default:
		p.minted++
		p.requests = append(p.requests, &request{place: place{key: key}, cancel: func() {}, holds: true, returned: true, token: token})
	}
	if err != want {
		p.t.Fatalf("TryLock(%q): %v, want %v", key, err, want)
	}
}

func (p *pair) unlock(r *request) {
	if listed := p.table.Unlock(r.key, r.token); listed != r.listed {
		p.t.Fatalf("Unlock(%q, %d): listed %v, want %v", r.key, r.token, listed, r.listed)
	}
	p.requests = slices.DeleteFunc(p.requests, func(x *request) bool { return x == r })
}

func (p *pair) close() {
	var want []Held
	for _, r := range p.requests {
		if r.holds {
			r.listed = true
			want = append(want, Held{Key: r.key, Token: r.token, Remote: r.remote})
		} else if !r.taken {
			r.want = ErrClosed
		}
	}
	slices.SortFunc(want, func(a, b Held) int { return int(a.Token - b.Token) })
	if held := p.table.Close(); !slices.Equal(held, want) {
		p.t.Fatalf("Close: %v, want %v", held, want)
	}
	p.closed, p.blocked = true, nil
}

func (p *pair) open(arg int) {
	var blocked []string
	for i, key := range fuzzKeys {
		if arg>>i&1 != 0 {
			blocked = append(blocked, key)
		}
	}
	// Either no token or enough for every key: which key is granted first is
	// left open.
	first, limit := p.minted-1, p.minted+1
	switch arg >> 3 {
	case 1:
		first, limit = p.minted+10, 0
	case 2, 3:
		limit += int64(len(fuzzKeys))
	}
	p.table.Open(first, limit, blocked)
	for _, key := range blocked {
		if !slices.Contains(p.blocked, key) {
			p.blocked = append(p.blocked, key)
		}
	}
	if p.closed {
		p.closed, p.limit = false, limit
	}
	p.raise(first, limit)
}

// install has somebody hold a key with a token of another table.
func (p *pair) install(key string) {
	p.installed--
	refused := !p.table.Install(key, p.installed, false)
	if want := p.holder(key) != nil; refused != want {
		p.t.Fatalf("Install(%q): refused %v, want %v", key, refused, want)
	} else if !want {
		p.requests = append(p.requests, &request{place: place{key: key}, cancel: func() {}, holds: true, remote: true, returned: true, seen: true, token: p.installed})
	}
}

func (p *pair) raise(first, limit int64) {
	p.minted = max(p.minted, first-1)
	if p.limit != 0 && limit != 0 {
		p.limit = max(p.limit, limit)
	} else {
		p.limit = 0
	}
}

// compare compares what can be seen of both, when all has come to rest.
func (p *pair) compare() {
	p.t.Helper()
	synctest.Wait()
	present := map[string]bool{}
	for _, key := range p.blocked {
		present[key] = true
	}
	for _, r := range p.requests {
		switch {
		case r.want != nil:
			if !r.returned || !errors.Is(r.err, r.want) {
				p.t.Fatalf("Lock(%q): returned %v, %v, want %v", r.key, r.returned, r.err, r.want)
			}
			continue
		case r.ends:
			if !r.returned || r.token != 0 || r.err != nil || !r.item.Taken() {
				p.t.Fatalf("LockWait(%q) with an item: returned %v, %d, %v, want it to be finished", r.key, r.returned, r.token, r.err)
			}
			continue
		case r.holds && !r.seen:
			if !r.returned || r.err != nil || r.token > p.minted || r.token <= p.floor {
				p.t.Fatalf("Lock(%q): returned %v, %d, %v, want a token from %d to %d", r.key, r.returned, r.token, r.err, p.floor+1, p.minted)
			}
			r.seen = true
		case !r.holds && r.returned:
			p.t.Fatalf("Lock(%q): returned %d, %v, want it to wait", r.key, r.token, r.err)
		case r.taken:
			continue
		}
		present[r.key] = true
	}
	p.requests = slices.DeleteFunc(p.requests, func(r *request) bool { return r.want != nil || r.ends })
	for _, key := range fuzzKeys {
		if got, want := p.table.Queued(key), len(p.queue(key)); got != want {
			p.t.Fatalf("Queued(%q): %d, want %d", key, got, want)
		}
	}
	if got := p.table.Len(); got != len(present) {
		p.t.Fatalf("Len: %d, want %d", got, len(present))
	}
	if got, want := p.table.Queue.Waiting(), len(p.queue("")); got != want {
		p.t.Fatalf("Waiting: %d, want %d", got, want)
	}
}

// finish ends all that waits or holds; nothing may be left.
func (p *pair) finish() {
	for range 2 {
		p.close()
		p.compare()
	}
	for len(p.along) > 0 {
		p.finishItem()
		p.compare()
	}
	for len(p.requests) > 0 {
		p.unlock(p.requests[0])
		p.compare()
	}
}
