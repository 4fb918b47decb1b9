package send

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Options are what the configurations of a router and of a client have in common.
type Options struct {
	Members gateway.Members // of the workers' cluster
	gateway.Limits
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	Own     func(context.Context) (net.Conn, error) // connects to the worker of this process, in memory; nil for none
	Local   local.Worker                            // the same worker, which takes only the link from there; nil for none
	PeerTLS *gateway.PeerTLS                        // nil for none
	Logger  *slog.Logger
}

// Complete sets defaults for fields that are 0 or nil. It returns an error if a field is negative;
// pkg is the package whose configuration it is.
func (o *Options) Complete(pkg string) (err error) {
	hop.Default(&err, pkg+": Limits.Hold", &o.Hold, 15*time.Second)
	hop.Default(&err, pkg+": Limits.MaxHeld", &o.MaxHeld, 10_000)
	hop.Default(&err, pkg+": Limits.ReplayBytes", &o.ReplayBytes, 64<<20)
	hop.Default(&err, pkg+": Limits.MaxBody", &o.MaxBody, 1<<30)
	hop.Default(&err, pkg+": Limits.BodyFiles", &o.BodyFiles, spool.DefaultFiles(o.BodyDir))
	hop.Default(&err, pkg+": Limits.ConnsPerWorker", &o.ConnsPerWorker, 4096)
	hop.Default(&err, pkg+": Limits.DialTimeout", &o.DialTimeout, time.Second)
	if o.NoHold {
		o.Hold = 0
	}
	if o.Dial == nil {
		o.Dial = newDialer(o.DialTimeout).DialContext
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return err
}

// Open checks o, which must be complete. It returns the workers and the budget for bodies; shares
// is the number of equal parts of that budget, and a client may use one. pkg is as in Complete.
func (o Options) Open(pkg string, shares int64) (*Workers, *spool.Pool, error) {
	if o.Members == nil {
		return nil, nil, errors.New(pkg + ": Config.Members is missing")
	}
	if err := hop.CheckPeerTLS(pkg+": Config.PeerTLS", o.PeerTLS, o.Members); err != nil {
		return nil, nil, err
	}
	budget, err := spool.NewPool(spool.Config{Memory: int64(o.ReplayBytes), Files: o.BodyFiles, PerSpool: o.MaxBody, Dir: o.BodyDir, Shares: shares})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: Limits.BodyDir (--body-dir): %w", pkg, err)
	}
	if err := budget.Usable(); err != nil {
		o.Logger.Warn("larger bodies are in memory only, as far as there is room: no temporary file can be made; say where with --body-dir", "error", err)
	}
	ws := &Workers{Members: o.Members, Ring: o.Members.Settings().WithDefaults().Ring, options: o, link: hop.LinkConfig(o.Members, hop.MaxHeaderBytes, o.Logger)}
	ws.accusations.ctx, ws.accusations.stop = context.WithCancel(context.Background())
	ws.Routes = routing.New(o.Members, ws.Ring.Partitions, o.Hold, o.MaxHeld)
	if o.PeerTLS != nil {
		ws.tls = o.PeerTLS.ClientConfig()
		ws.stop = o.PeerTLS.OnReload(func() { ws.drop(func(string) bool { return true }) })
	}
	return ws, budget, nil
}
