// Package store is for programs that start a worker of their own: it keeps in Redis what the ownership protocol has to agree on: the
// sessions of workers and who owns each partition, under which epoch. Every
// call is one script, so that it happens at once or not at all.
//
// [Store] is over a Redis that the cluster shares, and [Embedded] is a Redis within
// this process for one machine. docs/protocol.md tells what they are asked for and why.
package store
