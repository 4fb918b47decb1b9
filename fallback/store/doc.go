// Package store is for programs that start a worker of their own. It keeps in Redis what the
// ownership protocol must agree on: the sessions of workers, and the owner and epoch of each
// partition. Every call is one script, so it takes effect completely or not at all.
//
// [Store] uses a Redis that the cluster shares, and [Embedded] is a Redis within this process for
// one machine. docs/protocol.md explains what they are asked for and why.
package store
