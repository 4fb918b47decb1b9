//go:build linux

package load

import (
	"context"
	"fmt"
	"time"
)

// What Await does.
const (
	awaitTime = time.Minute            // bounds it
	probeTime = 100 * time.Millisecond // of one load
)

// Await makes the load of one client, again and again, until nothing of it fails.
func Await(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	cfg.Clients, cfg.Streams, cfg.Rate, cfg.WarmUp, cfg.Time = 1, 1, 0, 0, probeTime
	var failures Failures
	for {
		r, err := Run(ctx, cfg)
		switch {
		case err != nil:
			return fmt.Errorf("load: not all requests are answered: %w; %v", err, failures)
		case r.Failed == 0:
			return nil
		}
		failures = r.Failures
	}
}
