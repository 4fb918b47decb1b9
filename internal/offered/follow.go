package offered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

const (
	unsureInterval = time.Second
	sureInterval   = 10 * time.Second
	askTimeout     = 5 * time.Second
)

// Follower is for a member that is no worker. It compares this member's store with the workers',
// and finds members through the store's sessions.
type Follower struct {
	Store   Asked
	Members *gossip.Cluster
	Logger  *slog.Logger

	// Alone makes it look for members in the store even while it sees no worker.
	Alone bool

	trouble atomic.Pointer[error] // that the store is not the workers'
}

// Asked is what a Follower asks a store.
type Asked interface {
	Settings() ring.Settings
	Generation(ctx context.Context, begin bool) (string, error)
	Ping(ctx context.Context) error
	Peers(ctx context.Context) ([]string, error)
}

// Follow compares in the background: every second until the store is known and no member uses
// another one, and then every 10 s. The caller must call stop.
func (f *Follower) Follow() (stop func()) {
	return wake.Background(func(ctx context.Context) {
		var known bool
		var asked time.Time
		for again := true; again; again = wake.Sleep(unsureInterval, ctx.Done()) {
			differ := len(ring.ActiveWorkers(f.Members.View().Refused)) > 0
			if !known || differ || time.Since(asked) >= sureInterval {
				asked = time.Now()
				known = f.compare(ctx)
			}
		}
	})
}

// compare announces the identity of the store, and reports whether it is known. Before an active
// worker has announced its own, it only checks whether the store can be used: asking would begin
// the store's first generation, with a quarantine. If such a worker is there and the store is
// empty, it is another store, or was emptied and is the workers' to begin again.
func (f *Follower) compare(ctx context.Context) (known bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	view := f.Members.View()
	worker, found := usesStore(view)
	if !found {
		f.noteReading(f.Store.Ping(ctx))
		if f.Alone && len(view.Workers()) == 0 {
			f.addPeers(ctx)
		}
		return false
	}
	if _, err := f.Store.Generation(ctx, false); err != nil {
		f.noteReading(fmt.Errorf("%w (worker %q at %s uses store %v)", err, worker.Name, worker.Gossip, worker.StoreID))
		return false
	}
	f.noteReading(nil)
	id := f.Store.Settings().Store
	if err := f.Members.Announce(func(self *ring.Member) { self.StoreID = id }); err != nil {
		f.Logger.Debug("cannot announce the store's identity", "error", err)
	}
	own := func(m ring.Member) bool { return m.StoreID == id }
	if slices.ContainsFunc(f.Members.View().Workers(), own) {
		f.addPeers(ctx)
	}
	return true
}

// usesStore returns an active worker that has announced its store, be it
// another one than ours.
func usesStore(view *ring.View) (worker ring.Member, found bool) {
	for _, m := range slices.Concat(view.Workers(), ring.ActiveWorkers(view.Refused)) {
		if m.StoreID != 0 {
			return m, true
		}
	}
	return ring.Member{}, false
}

// noteReading keeps for Ready what is wrong with the store: that it could not be asked
// changes nothing.
func (f *Follower) noteReading(err error) {
	if err != nil && !errors.Is(err, ring.ErrSettings) {
		f.Logger.Debug("cannot ask the store", "error", err)
		return
	}
	was := f.Ready()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		f.Logger.Error("the store is not the one that the workers use", "error", err)
	}
	f.trouble.Store(&err)
}

// Ready returns ring.ErrSettings if the store was found not to be the workers'.
func (f *Follower) Ready() error {
	if err := f.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// addPeers gives gossip the addresses of the store's sessions to join. Unless there is no worker at all, one of the store
// must be within sight: otherwise the store may be another cluster's, and two clusters that meet are two stores under one
// ring.
func (f *Follower) addPeers(ctx context.Context) {
	peers, err := f.Store.Peers(ctx)
	if err != nil {
		f.Logger.Debug("cannot ask the store for members", "error", err)
		return
	}
	f.Members.AddSeeds(peers)
}
