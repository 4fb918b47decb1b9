package handoff

import "github.com/keyway-go/keyway/internal/lease"

// Instant is one reading of a process's two clocks.
type Instant = lease.Instant

// Lease says how long an incarnation may continue without renewing its session.
type Lease = lease.Lease
