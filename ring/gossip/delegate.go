package gossip

import (
	"fmt"
	"sync"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/ring"
)

// inbox holds the news since the owner last looked. memberlist calls back with
// its locks held, so the callbacks only put something here and go.
type inbox struct {
	wake chan struct{} // has one element when there is news

	mu       sync.Mutex
	members  map[string]*ring.Member // by node; the latest of each, nil if gone
	refusals map[string]error        // by node; bounded
	clashes  map[string]error        // by node; bounded
}

const inboxBound = 64 // on entries that strangers can cause

func newInbox() *inbox {
	in := &inbox{wake: make(chan struct{}, 1)}
	in.reset()
	return in
}

// reset needs in.mu, or an inbox that nobody else has.
func (in *inbox) reset() {
	in.members = make(map[string]*ring.Member)
	in.refusals = make(map[string]error)
	in.clashes = make(map[string]error)
}

func (in *inbox) put(f func()) {
	in.mu.Lock()
	f()
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) setMember(node string, m *ring.Member) {
	in.put(func() { in.members[node] = m })
}

func (in *inbox) refuse(node string, err error) {
	in.put(func() { putBounded(in.refusals, node, err) })
}

func (in *inbox) clash(node string, err error) {
	in.put(func() { putBounded(in.clashes, node, err) })
}

func putBounded(m map[string]error, node string, err error) {
	if len(m) < inboxBound {
		m[node] = err
	}
}

type news struct {
	members  map[string]*ring.Member
	refusals map[string]error
	clashes  map[string]error
}

func (in *inbox) take() news {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := news{in.members, in.refusals, in.clashes}
	in.reset()
	return n
}

// delegate answers memberlist.
type delegate struct{ c *Cluster }

func (d *delegate) NodeMeta(int) []byte { return *d.c.meta.Load() }

func (d *delegate) admit(n *memberlist.Node) error {
	err := admit(d.c.identity, d.c.settings, n.Name, n.Address(), n.Meta)
	if err != nil {
		d.c.inbox.refuse(n.Name, err)
	}
	return err
}

// NotifyAlive keeps strangers out, however memberlist heard of them.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.c.node {
		return nil
	}
	return d.admit(n)
}

// NotifyMerge keeps whole clusters of strangers out, and lets Join fail.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, n := range peers {
		if n.Name == d.c.node || n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		if err := d.admit(n); err != nil {
			return err
		}
	}
	return nil
}

func (d *delegate) NotifyJoin(n *memberlist.Node) { d.NotifyUpdate(n) }

// NotifyUpdate follows NotifyAlive, which has let the node in.
func (d *delegate) NotifyUpdate(n *memberlist.Node) {
	md, err := decodeMetadata(n.Meta)
	if err != nil || n.Name == d.c.node {
		return
	}
	m := md.member(memberName(n.Name), n.Address())
	d.c.inbox.setMember(n.Name, &m)
}

func (d *delegate) NotifyLeave(n *memberlist.Node) {
	if n.Name != d.c.node {
		d.c.inbox.setMember(n.Name, nil)
	}
}

func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.c.inbox.clash(other.Name, fmt.Errorf("node %q is known at %s and also claimed from %s: the latter is ignored while the former lives",
		other.Name, existing.Address(), other.Address()))
}

// Keyway sends no messages of its own through memberlist.

func (d *delegate) NotifyMsg([]byte)                {}
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (d *delegate) LocalState(bool) []byte          { return nil }
func (d *delegate) MergeRemoteState([]byte, bool)   {}
