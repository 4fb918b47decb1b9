//go:build !keyway_redis

package offered

// HasEmbedded reports that the program can run a store of its own.
const HasEmbedded = true
