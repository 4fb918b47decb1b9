package gateway

import "github.com/keyway-go/keyway/ring"

// Members is this process's membership in the cluster; gossip.Cluster implements
// it.
type Members interface {
	// Self returns this member as it was announced last. Its Name, Role and Gossip
	// do not change.
	Self() ring.Member
	// View returns the present view of the cluster; never nil.
	View() *ring.View
	// Settings returns what all members share. Only their Store changes, when
	// this process learns of it.
	Settings() ring.Settings
	// Secrets returns secrets of 32 bytes that only members know and by which they prove their
	// membership for a purpose: the first one proves, all verify. Without secrets, any process that
	// reaches a member passes for one.
	Secrets(purpose string) [][]byte
	// Changed returns a channel that is closed at the next change of View.
	Changed() <-chan struct{}
	// Announce changes what the other members see of this one: its Incarnation,
	// State, Addr, Link, GRPC or Store. Its View is kept up to date without that.
	Announce(update func(self *ring.Member)) error
}
