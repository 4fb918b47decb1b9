// Package handoff decides, for one worker, which partitions it owns and when. It is the protocol
// that makes distributed locks unnecessary: at any moment at most one worker admits requests for a
// key, although workers admit requests without asking each other. docs/protocol.md gives the reason
// of each step.
//
// A Machine is pure: it has no goroutine, no clock, no randomness and no I/O. A shell steps it with
// events (Input: a view of the ring, replies of the store, closed tables, ended handlers) and
// carries out the result (Effect: calls of the store, orders to the request path, news). The tests
// can therefore check everything that the package promises on the code that runs. They search all
// behaviour of small clusters, with lost, late and repeated calls, crashes, suspended machines,
// clocks that step, and a store that loses data.
//
// # The story
//
// A worker's incarnation registers a session in the store and renews it. Its Lease begins just
// before the last confirmed renewal is sent. Until 70 percent of the TTL the worker may start
// requests, at 80 percent it cancels its handlers, and by 95 percent the lease is lost. Other
// workers take over no sooner than a full TTL after the latest possible renewal.
//
// A partition's record {epoch, owner} in the store says who owns it. Only compare-and-set changes
// it, and its epoch only rises. A worker serves a partition from the moment when it learns of a
// record that names it, at a higher epoch than any that it knew, until it closes the partition's
// table for good. To give a partition away, it closes the table and lists the running executions in
// one critical section. Then it moves the record to the next owner in one step with that list, the
// residue: keys that the next owner must not run until their entries are cleared. An entry is
// cleared when its handler returns, or dies with its holder.
//
// Locks are keys that a worker holds for callers in other processes. They end by themselves when
// their leases end. They move with their partition in the same step as the record, and continue at
// the next owner. The store keeps what a move has written of them for another TTL, for a worker
// that claims the partition if that owner dies.
//
// If a lock's lease is longer than a session's, the worker grants the lock only after the store
// keeps it, and frees its key only after the store has removed it. The partition's next owner
// therefore continues such a lock, even if the present owner dies.
//
// A worker never reopens a partition at the epoch at which it closed it, since a move that it sent
// may still be made. It goes forward: it moves the partition on, or claims it back at a higher
// epoch, whichever compare-and-set comes first.
//
// # The session
//
//	           register               the store lost data
//	starting ────────────▶ live ──────────────────────────▶ reasserting
//	   │                   │  ▲ ◀──────────────────────────  │     │
//	   │                   │  registered in its new generation     │
//	   │ told to leave     │ all handed over    deadline, or gone  │
//	   │                   ▼                         ▼             │
//	   └─────────────▶ releasing ◀───────────────── lost ◀─────────┘
//	                       │      handlers ended
//	                       ▼
//	                   released
//
//	starting → live            registered
//	starting → lost            the store says that this incarnation was released
//	starting → releasing       told to leave before it began
//	live → reasserting         the store has another generation
//	live → lost                not renewed in time, or the store has no session
//	live → releasing           told to leave, and nothing is left here
//	reasserting → live         registered again, with all that is served here
//	reasserting → lost         not registered in time
//	reasserting → releasing    told to leave, and nothing is left here
//	lost → releasing           the last handler has ended
//	releasing → released       the store knows, or a TTL has passed
//
// # A partition
//
//	         claim                 granted               the ring wants another
//	remote ────────▶ claiming ───────────────▶ serving ────────────▶ closing
//	 │ ▲ ▲                ▲ claim back           ▲ ▲                  │   │
//	 │ │ └────────────────│────── gone ──────────│─│──────────────────│───┘
//	 │ │                  └──────────── parked ──┘ │ ◀── closed ──────┘
//	 │ │ moved                          │    ▲     │
//	 │ └──────────────── moving ◀───────┘    │     │
//	 │                   │  └─── refused or unknown, or lost sight of
//	 └─ granted by others ─────────────────────────┘
//
//	remote → claiming    the owner is dead, or there never was one
//	remote → serving     another worker moved it here
//	remote → parked      the record names us, but at an epoch that is not fresh
//	claiming → serving   the claim was made
//	claiming → remote    the claim was refused, or its outcome is unknown
//	claiming → parked    the same, for one whose record names us
//	serving → closing    it is to go, or gone
//	closing → parked     closed and listed
//	closing → remote     closed, but the record is not ours any more
//	parked → moving      the ring wants another owner, which lives and agrees
//	parked → claiming    nobody takes it
//	parked → serving     granted again at a fresh epoch
//	parked → remote      the record names another after all
//	moving → remote      moved
//	moving → serving     moved, and moved back, before we learned of either
//	moving → parked      refused, or the outcome is unknown
//
// The tables in state.go hold the same transitions, and one function each
// writes the state and checks them.
package handoff
