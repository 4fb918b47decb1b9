// Package fallback makes clients of the Redis that Keyway falls back to where
// memory does not do: package store keeps there who owns what, and package lock
// takes locks for callers outside of the ring.
package fallback
