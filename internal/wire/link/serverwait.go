package link

import (
	"fmt"
	"slices"
	"time"
)

// A request that waits for others to end, and after it for its own begin:
//
//	BeginWait → unsaid → said → begun
//	               └──────────────┘
//
// The client is told of a wait that lasts (said), and then, before the request
// begins, of its end.
type waitState uint8

const (
	noWait waitState = iota
	unsaid           // the client has not been told that the request waits
	said             // it has
	begun            // the request may have begun, for all that the client knows
)

// waitTick is how often a connection looks for lasting waits. The client learns of a wait that has
// lasted for one to two ticks.
const waitTick = time.Millisecond

// waits are the waits of a connection's requests, guarded by its mu.
type waits struct {
	count   int             // between BeginWait and EndWait
	fresh   []*serverStream // began to wait after the last tick
	lasting []*serverStream // were unsaid at the last tick
	ticking bool
}

// wait is a request's part in them, under serverConn.mu.
type wait struct {
	state waitState
	begun int64 // position in the byte stream behind the begun frame; 0 for none, -1 if there cannot be one
}

// BeginWait records that the request waits for others before it begins, until EndWait. The client
// learns of a wait that lasts: if the worker dies meanwhile, the client knows that the request has
// not begun. BeginWait returns false and records nothing if half of the requests that the
// connection takes already wait. The caller should then refuse the request as [Busy], which keeps
// the other half free for requests that need not wait.
func (r *ServerRequest) BeginWait() bool {
	st, sc := r.st, r.st.sc
	sc.mu.Lock()
	may := sc.waits.count < (sc.cfg.MaxStreams+1)/2
	if may {
		sc.waits.count++
		if st.wait.state == noWait {
			st.wait.state = unsaid
			sc.waits.fresh = append(sc.waits.fresh, st)
			sc.tickLocked()
		}
	}
	sc.mu.Unlock()
	if may {
		sc.makeRoom()
	}
	return may
}

// EndWait ends the wait that a BeginWait has allowed. The request has been refused,
// or Begin was called before.
func (r *ServerRequest) EndWait() {
	st, sc := r.st, r.st.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.waits.count--
	if st.wait.state == unsaid {
		st.wait.state = begun
	}
}

// NoteBegin sends the frame that Begin waits for, if there is one, without waiting. A caller that
// begins several requests at once calls it for all of them first.
func (r *ServerRequest) NoteBegin() { r.noteBegin(r.st.c.out.add) }

// Begin must be called before a request begins that has waited. If the client knows of the wait,
// Begin returns when the kernel has taken the frame that ends it. After an error, which comes
// within a second, the request must not begin, and may be refused: the client has left, or takes
// nothing.
func (r *ServerRequest) Begin() error {
	out, err := r.st.c.out, errUntaken
	if end := r.noteBegin(out.stage); end >= 0 {
		err = out.flush(r.Context(), end)
	}
	if err != nil {
		return fmt.Errorf("link: a request that has waited must not begin: %w", err)
	}
	return nil
}

// noteBegin returns where in the byte stream the begun frame ends, see wait.
func (r *ServerRequest) noteBegin(queue func([]byte) (end int64, err error)) (end int64) {
	st, sc := r.st, r.st.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if st.wait.state == said {
		frame := bareFrame(kindBegun, st.id)
		var err error
		if st.wait.begun, err = queue(frame[:]); err != nil {
			st.wait.begun = -1
		}
	}
	st.wait.state = begun
	return st.wait.begun
}

// tickLocked sees that the next tick comes.
func (sc *serverConn) tickLocked() {
	if !sc.waits.ticking {
		sc.waits.ticking = true
		time.AfterFunc(waitTick, sc.tellWaits)
	}
}

// tellWaits reports waits to the client that have lasted for a tick, and runs again a tick later
// while there are others.
func (sc *serverConn) tellWaits() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	ws := &sc.waits
	for _, st := range ws.lasting {
		if st.wait.state == unsaid {
			st.wait.state = said
			frame := bareFrame(kindWaiting, st.id)
			sc.queue(frame[:])
		}
	}
	clear(ws.lasting)
	ws.lasting, ws.fresh = slices.DeleteFunc(ws.fresh, func(st *serverStream) bool { return st.wait.state != unsaid }), ws.lasting[:0]
	if ws.ticking = false; len(ws.lasting) > 0 && !sc.ended() {
		sc.tickLocked()
	}
}
