package gossip

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/internal/wake"
)

// inbox holds the news since the owner last looked. memberlist calls back with
// its locks held, so the callbacks only put something here and go.
type inbox struct {
	wake chan struct{} // has one element when there is news

	mu   sync.Mutex
	news news
}

// news is what memberlist has called back with.
type news struct {
	members  map[string]*peer // by node; the latest of each, nil if gone
	dead     []string         // incarnations; bounded
	refusals map[string]error // by node; bounded
	clashes  map[string]error // by node; bounded
	placed   []byte           // message with placements; nil for none
}

const inboxBound = 64 // on entries that strangers can cause

func newNews() news {
	return news{map[string]*peer{}, nil, map[string]error{}, map[string]error{}, nil}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1), news: newNews()} }

// put adds to the news by f and wakes the owner.
func (in *inbox) put(f func(*news)) {
	in.mu.Lock()
	f(&in.news)
	in.mu.Unlock()
	wake.Up(in.wake)
}

func putBounded(m map[string]error, node string, err error) {
	if len(m) < inboxBound {
		m[node] = err
	}
}

func (in *inbox) takeNews() (n news) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n, in.news = in.news, newNews()
	return n
}

// delegate answers memberlist.
type delegate struct{ c *Cluster }

func (d *delegate) NodeMeta(int) []byte { return *d.c.meta.Load() }

func (d *delegate) admit(n *memberlist.Node) error {
	err := admit(d.c.identity, d.c.settings, n.Name, n.Address(), n.Meta)
	if err != nil {
		d.c.inbox.put(func(news *news) { putBounded(news.refusals, n.Name, err) })
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
	d.c.inbox.put(func(n *news) { putBounded(n.clashes, other.Name, err) })
}

// NotifyMsg takes the messages of Keyway's own: a member's news, and those of Bury.
func (d *delegate) NotifyMsg(message []byte) {
	if len(message) == 0 || message[0] != deadMark {
		d.c.news.hearAll(d.c.node, message)
		return
	}
	d.c.inbox.put(func(n *news) {
		if len(n.dead) < inboxBound {
			n.dead = append(n.dead, strings.Fields(string(message[1:]))...)
		}
	})
}

func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte { return d.c.news.next(overhead, limit) }

// LocalState and MergeRemoteState bring what got lost.
func (d *delegate) LocalState(bool) []byte { return d.c.news.all() }

func (d *delegate) MergeRemoteState(state []byte, _ bool) {
	each(state, func(message []byte) {
		switch {
		case len(message) == 0 || message[0] != placedMark:
			d.c.news.hear(d.c.node, message, false)
		case !d.c.news.hasPlaced(message):
			d.c.inbox.put(func(n *news) { n.placed = slices.Clone(message) })
		}
	})
}
