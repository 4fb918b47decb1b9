// Package fallback is for programs that open a store or take locks in Redis: it makes clients of
// the Redis that Keyway uses where memory is not enough. Package store keeps the ownership of
// partitions there, and package lock takes locks for callers outside of the ring.
package fallback
