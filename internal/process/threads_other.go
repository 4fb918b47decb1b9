//go:build !unix

package process

import "time"

var cpuTime func() time.Duration // nil: it is not known
