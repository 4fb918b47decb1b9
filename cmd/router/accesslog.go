package main

import (
	"context"
	"log/slog"

	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/cli"
)

// openAccessLog starts the log of --access-log, nil for none. SIGHUP opens its file anew.
func (o *options) openAccessLog(logger *slog.Logger) (*accesslog.Log, error) {
	if o.accessLog.File == "" {
		return nil, nil
	}
	config := o.accessLog
	config.Logger = logger
	l, err := accesslog.New(config)
	if err != nil {
		return nil, err
	}
	if err := l.Start(); err != nil {
		return nil, cli.Usagef("--access-log: %v", err)
	}
	o.OnHangup(l.Reopen)
	return l, nil
}

// closeAccessLog writes what is left of a log, which may be nil.
func closeAccessLog(l *accesslog.Log) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = l.Close(ctx) // a disk that takes nothing has been warned of
}
