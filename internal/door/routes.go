package door

import (
	"fmt"
	"log/slog"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/internal/cli"
)

// followRoutes puts the file of --routes in force when it changes, and on SIGHUP. With mistakes, or
// with other keys than those in force, it changes nothing.
func (o *Options) followRoutes(c *cli.Common, rt *router.Router, logger *slog.Logger) {
	if o.routesSeen == nil {
		return
	}
	c.Follow(o.routesSeen, func() {
		if err := rt.Reload(o.routesFile); err != nil {
			logger.Error("the routes cannot be reloaded: the old ones stay in force", "file", o.routesFile, "error", cli.OneLine(err))
			return
		}
		table := rt.Routes()
		logger.Info("routes are in force", "file", o.routesFile, "routes", len(table.Routes()), "digest", fmt.Sprintf("%016x", table.Digest()))
	})
}
