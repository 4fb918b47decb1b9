// Package handoff decides, for one worker, which partitions it owns and when.
// It is the protocol that makes distributed locks unnecessary: at any moment
// at most one worker admits requests for a key, although no worker asks
// anybody before it admits one. docs/protocol.md says why each step is there.
//
// A Machine is pure: it has no goroutine, no clock, no randomness and no I/O.
// A shell steps it with what happened (Input: a view of the ring, replies of
// the store, tables that were closed, handlers that ended) and does what it
// returns (Effect: calls of the store, orders to the request path, news).
// Everything that the package promises is therefore tested on the very code
// that runs: the tests search all that can happen in small clusters, with
// lost, late and repeated calls, crashes, suspended machines, clocks that
// step, and a store that loses data.
//
// # The story
//
// A worker's incarnation registers a session in the store and keeps it alive.
// From the moment before the last confirmed renewal was sent runs its Lease:
// until 70 percent of the TTL it may start requests, at 80 percent it cancels
// its handlers, and by 95 percent it is lost. Others take over no sooner than
// a full TTL after the latest moment at which it may have renewed.
//
// A partition's record {epoch, owner} in the store says who owns it. It changes
// by compare-and-set alone, and its epoch only goes up. A worker serves a
// partition from when it learns of a record that names it at an epoch higher
// than all that it knew of, until it closes the partition's table for good. It
// closes first, lists the executions that still run in the same critical
// section, and then moves the record to the next owner in one step with that
// list, the residue: keys that the next owner must not run yet. Each residue
// entry is cleared when its handler returns, or dies with its holder.
//
// Keys that a worker holds for holders elsewhere, its locks, end by themselves at
// the end of their leases. They move with their partition, in the same step as
// the record, and go on at the next owner. The store keeps what a move has
// written of them for a TTL more, for whoever claims the partition if that owner
// dies.
//
// A lock whose lease is longer than a session's the worker has the store keep
// before it is granted, and not keep any more before its key is free. So whoever
// serves the partition next goes on with it, whatever has become of the owner.
//
// What a worker has closed it never opens again at that epoch, for a move that
// it sent may still be made. It goes forward: it moves the partition on, or
// claims it back at a higher epoch, whichever compare-and-set comes first.
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
