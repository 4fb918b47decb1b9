package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// How often the first of those who wait for a partition asks for its owner.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// admittedAfter is how long an attempt goes without a refusal until the others
// who wait take it that the partition has an owner again: refusals come at
// once, answers take as long as the handler.
const admittedAfter = 10 * time.Millisecond

var errHallFull = errors.New("router: too many requests wait for an owner")

// hall is where requests wait while their partition has no reachable owner.
// There is a room for each such partition. One visitor of a room, the scout,
// looks for an owner: when the view changes and in growing intervals. The
// others sleep until the scout gets through or the owner is learned from
// another request, so that a crowd costs a worker no more than one request.
type hall struct {
	patience time.Duration // how long a request waits; 0 or less: not at all
	limit    int           // on visitors

	waiting atomic.Int64 // visitors
	total   atomic.Int64 // visitors so far

	mu    sync.Mutex
	rooms map[int]*room // by partition; those with visitors
}

type room struct {
	scout    chan struct{} // holds one element while there is a scout
	visitors int           // guarded by hall.mu
	door     chan struct{} // closed to let everybody in; guarded by hall.mu
}

func (h *hall) enter(p int) (*room, bool) {
	if h.waiting.Add(1) > int64(h.limit) {
		h.waiting.Add(-1)
		return nil, false
	}
	h.total.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms == nil {
		h.rooms = make(map[int]*room)
	}
	r := h.rooms[p]
	if r == nil {
		r = &room{scout: make(chan struct{}, 1), door: make(chan struct{})}
		h.rooms[p] = r
	}
	r.visitors++
	return r, true
}

func (h *hall) leave(p int) {
	h.waiting.Add(-1)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[p]
	if r.visitors--; r.visitors == 0 {
		delete(h.rooms, p)
	}
}

// open lets everybody who waits for the partition try again.
func (h *hall) open(p int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[p]; r != nil {
		close(r.door)
		r.door = make(chan struct{})
	}
}

func (h *hall) door(r *room) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.door
}

// visit is one request's stay in a room.
type visit struct {
	routes    *routes
	partition int
	room      *room
	scouts    bool
	pause     time.Duration
}

// wait goes on making rounds until the request is settled or its patience
// ends; if it ends during a round, and something has changed meanwhile, one
// more follows. seen is what the last round went by, and why how it failed.
func (r *routes) wait(ctx context.Context, p int, seen look, why error, attempt attemptFunc) error {
	if r.hall.patience <= 0 {
		return r.unreachable(p, why)
	}
	room, ok := r.hall.enter(p)
	if !ok {
		return errHallFull
	}
	defer r.hall.leave(p)
	v := &visit{routes: r, partition: p, room: room, pause: firstPause}
	defer v.resign()
	patience, cancel := context.WithTimeout(ctx, r.hall.patience)
	defer cancel()
	for over := false; ; {
		if !v.sleep(patience, seen) {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case over || r.look(p) == seen:
				return r.unreachable(p, why)
			}
			over = true
		}
		seen = r.look(p)
		done, err := v.round(ctx, attempt)
		if done {
			return err
		}
		why = err
	}
}

// sleep returns true when a round may have a better end than the last one,
// which went by seen, and false when ctx is done.
func (v *visit) sleep(ctx context.Context, seen look) bool {
	door := v.routes.hall.door(v.room)
	changed := v.routes.members.Changed()
	if v.routes.look(v.partition) != seen {
		v.pause = firstPause
		return ctx.Err() == nil
	}
	if !v.scouts {
		select {
		case <-door:
			return ctx.Err() == nil
		case v.room.scout <- struct{}{}:
			v.scouts = true
		case <-ctx.Done():
			return false
		}
	}
	timer := time.NewTimer(v.pause/2 + rand.N(v.pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		v.pause = min(2*v.pause, lastPause)
	case <-changed:
		v.pause = firstPause
	case <-door:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// round makes a round; if the scout's is settled, or not refused for a while,
// the door opens and another one may become the scout.
func (v *visit) round(ctx context.Context, attempt attemptFunc) (done bool, err error) {
	r, p := v.routes, v.partition
	if !v.scouts {
		return r.round(ctx, p, attempt)
	}
	through := sync.OnceFunc(func() {
		r.hall.open(p)
		<-v.room.scout
	})
	timer := time.AfterFunc(admittedAfter, through)
	done, err = r.round(ctx, p, attempt)
	if !timer.Stop() || done && ctx.Err() == nil {
		through()
		v.scouts = false
	}
	return done, err
}

// resign lets another visitor become the scout.
func (v *visit) resign() {
	if v.scouts {
		<-v.room.scout
		v.scouts = false
	}
}
