package gossip

import (
	"fmt"
	"strings"

	"github.com/hashicorp/memberlist"
)

// delegate answers memberlist.
type delegate struct{ c *Cluster }

func (d *delegate) NodeMeta(int) []byte { return *d.c.meta.Load() }

func (d *delegate) admit(n *memberlist.Node) error {
	err := admit(d.c.identity, d.c.settings, n.Name, n.Address(), n.Meta)
	if err != nil {
		d.c.news.note(n.Name, err)
	}
	return err
}

// NotifyAlive keeps strangers out, however memberlist heard of them.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.c.node || d.c.news.knows(n.Name, n.Meta) {
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
	d.c.stir(true)
	md, err := decodeMetadata(n.Meta)
	if err != nil || n.Name == d.c.node {
		return
	}
	p := peer{md.member(memberName(n.Name), n.Address()), keys{md.settings.KeySource, md.since}}
	d.c.news.meet(n.Name, n.Meta, p, md.version)
}

func (d *delegate) NotifyLeave(n *memberlist.Node) {
	d.c.stir(true)
	if n.Name != d.c.node {
		d.c.news.part(n.Name)
	}
}

func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	err := fmt.Errorf("node %q is known at %s and also claimed from %s: the latter is ignored while the former lives",
		other.Name, existing.Address(), other.Address())
	d.c.news.note(other.Name, err)
}

// NotifyMsg takes the messages of Keyway's own: a member's news, and those of Bury.
func (d *delegate) NotifyMsg(message []byte) {
	if len(message) == 0 || message[0] != deadMark {
		d.c.news.hearAll(message)
		return
	}
	d.c.news.bury(strings.Fields(string(message[1:])))
}

func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte { return d.c.news.next(overhead, limit) }

// LocalState and MergeRemoteState bring what got lost.
func (d *delegate) LocalState(bool) []byte { return d.c.news.all() }

func (d *delegate) MergeRemoteState(state []byte, _ bool) {
	each(state, func(message []byte) {
		if len(message) == 0 || message[0] != placedMark {
			d.c.news.hear(message, false)
		} else {
			d.c.news.hearPlaced(message)
		}
	})
}
