// Package fallback is for programs that open a store or take locks in Redis: it makes clients of
// the Redis that Keyway falls back to where memory does not do. Package store keeps there who owns what, and package lock
// takes locks for callers outside of the ring.
package fallback
