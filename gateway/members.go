package gateway

import "github.com/keyway-go/keyway/ring"

// Members is what gateway needs to know of the cluster; gossip.Cluster
// implements it.
type Members interface {
	// View returns the present view; never nil.
	View() *ring.View
	// Settings returns what all members share; it does not change.
	Settings() ring.Settings
	// Changed returns a channel that is closed at the next change of View.
	Changed() <-chan struct{}
	// Announce changes what the other members see of this one: its Incarnation,
	// State, Addr, Link or Store. Its View is kept up to date without that.
	Announce(update func(self *ring.Member)) error
}
