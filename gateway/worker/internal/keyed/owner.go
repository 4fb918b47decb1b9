package keyed

import (
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
)

// Owner has the partitions of the keys.
type Owner interface {
	// Post passes on that an execution has ended whose partition is given away, or that a partition has few tokens left.
	Post(in handoff.Input)
	// Waiting says what must happen before a partition without another known owner is served, and
	// how long that takes; 0 if that is unknown.
	Waiting(partition int, record *records.Record) (wait time.Duration, what string)
}
