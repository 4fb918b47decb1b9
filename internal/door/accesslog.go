package door

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/cli"
)

// logPatience bounds the wait for a disk that is to take what is left of an access log.
const logPatience = 2 * time.Second

// OpenLog starts the log of --access-log, if there is one, for Config. SIGHUP opens its file anew.
// stop writes what is left.
func (o *Options) OpenLog(c *cli.Common, logger *slog.Logger) (stop func(), err error) {
	if o.accessLog.File == "" {
		return func() {}, nil
	}
	config := o.accessLog
	config.Logger = logger
	l, err := accesslog.Start(config)
	if err != nil {
		return nil, cli.Usagef("--access-log: %v", err)
	}
	c.OnLook(func(hangup bool) {
		if hangup {
			l.Reopen()
		}
	})
	o.Config.AccessLog = l
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), logPatience)
		defer cancel()
		_ = l.Close(ctx) // a disk that takes nothing has been warned of
	}, nil
}
