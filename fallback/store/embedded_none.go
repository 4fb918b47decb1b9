//go:build keyway_redis

package store

import "errors"

// HasEmbedded reports that the program can run a store of its own.
const HasEmbedded = false

// Embedded is what a program with the build tag keyway_redis does not have.
type Embedded struct{ URL, Addr func() string }

// StartEmbedded returns an error.
func StartEmbedded(addr, password string) (*Embedded, error) {
	return nil, errors.New("store: this program was built with -tags keyway_redis, without the embedded store: give it the URL of a Redis")
}

// Close does nothing.
func (*Embedded) Close() error { return nil }
