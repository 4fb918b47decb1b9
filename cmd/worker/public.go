package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cli"
)

// serve serves the node until ctx ends, and the listeners of --public with it. The door leaves first: its requests for the
// node's own keys then still run here.
func (o *options) serve(ctx context.Context, node *keyway.Node, public []net.Listener, logger *slog.Logger, ready func(requests string) (stop func())) error {
	scheme := "http://"
	if o.PeerTLS != nil {
		scheme = "https://"
	}
	if len(public) == 0 {
		defer ready(scheme + node.Addr())()
		return node.Serve(ctx, nil)
	}
	stopAccessLog, err := o.door.OpenLog(&o.Common, logger)
	if err != nil {
		return err
	}
	defer stopAccessLog()
	router, err := node.Handler(nil, o.door.Config)
	if err != nil {
		return cli.Ended(ctx, err, keyway.ErrConfig)
	}
	failed := make(chan error, len(public))
	d := o.door.Open(&o.Common, router, public, failed, logger)
	defer d.Close()
	defer ready(d.URLs)()
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	go func() {
		select {
		case err := <-failed:
			end(fmt.Errorf("the server of --public ended: %w", err))
		case <-ctx.Done():
			_, grace := o.graces()
			if err := d.End(grace, logger); err != nil {
				logger.Warn("requests of clients still run; the keys are handed over meanwhile", "error", err)
			}
			end(nil)
		case <-serving.Done():
		}
	}()
	err = node.Serve(serving, nil)
	if cause := context.Cause(serving); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// graces divides --drain-timeout between the node and the door, which leaves before it.
func (o *options) graces() (node, door time.Duration) {
	if len(o.public) > 0 {
		door = o.DrainTimeout / 2
	}
	return max(o.DrainTimeout-door, 1), max(door, 1)
}
