// Package gateway is for programs that configure a router, a worker or a client, and for handlers
// and apps behind them. It has what these share: keys and their places in requests, the headers
// between router, worker and app, errors, and what all parts know about the members of the cluster.
// Package router is the front door, package worker runs requests with their keys held, and package
// admin serves the cluster's operators.
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
// If the old owner has died, its session in the store ends first, and its executions have ended by
// their lease. docs/protocol.md has the whole protocol.
package gateway
