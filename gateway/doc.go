// Package gateway is for programs that configure a router, a worker or a client, and for
// handlers and apps behind them: it is what these share. That is keys and where requests
// carry them, the headers between router, worker and app, errors, and what all need to know
// of the members of the cluster. Package router is the front door, package worker runs
// requests with their keys held, package admin answers those who run the cluster.
//
// The way of a request:
//
//	client ──▶ router.Server          HTTP/1.1, HTTP/2, or net/http's server
//	             │  KeySources        key ─▶ partition ─▶ owner, by the ring or by a hint
//	             │  hold              while the partition has no owner
//	             ▼
//	           link, or HTTP/1.1      with Keyway-Key, and without what may not cross
//	             │
//	             ▼
//	           worker.Server          is the partition served here? else 421 with a hint
//	             │  the key's queue   one at a time, in order of arrival
//	             ▼
//	           Handler or Sidecar     with Keyway-Token ──▶ app ──▶ the answer, the same way back
//
// The way of a partition:
//
//	members change ──▶ ring: who should own it
//	                     │
//	old owner: stops admitting, lets executions end, releases ──▶ store: epoch n, no owner
//	                                                                │
//	new owner: claims ◀─────────────────────────────────────────────┘
//	           epoch n+1 ──▶ its tokens are higher than all before
//
// Where the old owner has died, its session in the store ends first, and what it
// may still have run is over by its lease. docs/protocol.md has the whole.
package gateway
