package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/packed"
	"github.com/keyway-go/keyway/ring"
)

// status is what changes often in a member's description. Its metadata has the status as
// it was when memberlist last spread the metadata; later ones travel as news.
type status struct {
	version     uint64 // rises with each change, for as long as the process lives
	incarnation string
	state       ring.State
	store       ring.StoreID
	view        uint64
	epoch       int64
}

func statusOf(m ring.Member, version uint64) status {
	return status{version, m.Incarnation, m.State, m.StoreID, m.View, m.Epoch}
}

// update brings a member's description up to date.
func (s status) update(m *ring.Member) {
	m.Incarnation, m.State, m.StoreID, m.View, m.Epoch = s.incarnation, s.state, s.store, s.view, s.epoch
}

func (s status) validate() error {
	switch {
	case s.state < ring.StateJoining || s.state > ring.StateLeaving:
		return fmt.Errorf("has an unknown state (%d)", s.state)
	case s.epoch < 0 || s.epoch > epochLimit:
		return fmt.Errorf("knows of an impossible epoch (%d)", s.epoch)
	}
	return nil
}

// The first byte of a message of Keyway's own.
const (
	deadMark   = 'D' // incarnations that are dead, see Bury
	newsMark   = 'N' // a node and its status
	batchMark  = 'B' // messages with newsMark, each after its length
	placedMark = 'P' // placements and their version, in exchanges only
)

func encodeNews(node string, s status) []byte {
	b := make([]byte, 0, 80)
	b = append(b, newsMark)
	b = binary.AppendUvarint(b, uint64(len(node)))
	b = append(b, node...)
	b = binary.AppendUvarint(b, s.version)
	b = append(b, byte(s.state))
	b = binary.AppendUvarint(b, uint64(s.epoch))
	b = binary.BigEndian.AppendUint64(b, s.view)
	b = binary.BigEndian.AppendUint64(b, uint64(s.store))
	b = binary.AppendUvarint(b, uint64(len(s.incarnation)))
	return append(b, s.incarnation...)
}

var errNoNews = errors.New("not a member's news")

// decodeNews ignores bytes after the last field that it knows.
func decodeNews(b []byte) (node string, s status, err error) {
	r := packed.Reader{Rest: b}
	if r.Byte() != newsMark {
		return "", status{}, errNoNews
	}
	node = r.Text()
	s.version = r.Number(math.MaxInt64)
	s.state = ring.State(r.Byte())
	s.epoch = int64(r.Number(math.MaxInt64))
	s.view = r.Uint64()
	s.store = ring.StoreID(r.Uint64())
	s.incarnation = r.Text()
	if r.Bad || len(b) > metaLimit {
		return "", status{}, errNoNews
	}
	return node, s, s.validate()
}

// newsroom passes news on. A member that hears something new repeats it a few times, to members
// that memberlist chooses. News that get lost arrive when two members next exchange all they know,
// every few seconds. Any number of goroutines may call its methods, also with memberlist's locks
// held. memberlist calls back with its locks held, so the callbacks only put something here
// and go; the owner takes it.
type newsroom struct {
	self string        // name of this member's node
	wake chan struct{} // has one element when there is something for the owner
	stir func()        // is called, with mu held, when there is something to repeat

	mu     sync.Mutex
	unread unread            // what the owner has not taken
	placed []byte            // message with the placements in force; nil for none
	nodes  map[string]*node  // those that memberlist lists, this one included
	other  map[string]status // of others: they may be listed soon, or again
	queue  []*node           // whose news are to be repeated: fresh ones first, then in turn
}

// node is one of memberlist's.
type node struct {
	meta    []byte // metadata with which it was let in
	peer    peer
	version uint64
	news    []byte        // that were heard last; nil for none
	repeats int           // still to do
	done    chan struct{} // closed when none is left; nil if nobody waits
}

// unread is what has come since the owner last looked.
type unread struct {
	members map[string]*peer // by node, other ones; the latest of each, nil if gone
	notes   map[string]error // by node; bounded
	placed  []byte           // message with placements; nil for none
}

const (
	otherBound  = 1024 // on the news of nodes that are not listed
	unreadBound = 64   // on notes, which strangers can cause
)

func newNewsroom(self string, stir func()) *newsroom {
	return &newsroom{self: self, wake: make(chan struct{}, 1), stir: stir, nodes: make(map[string]*node), other: make(map[string]status), unread: newUnread()}
}

func newUnread() unread {
	return unread{make(map[string]*peer), make(map[string]error), nil}
}

// take returns what the owner has not taken.
func (r *newsroom) take() (u unread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, r.unread = r.unread, newUnread()
	return u
}

// publish has the owner take what is known of another node now, nil if it is gone. It is called with mu held, so in
// order: a member that is gone never returns by old news.
func (r *newsroom) publish(name string, p *peer) {
	r.unread.members[name] = p
	wake.Up(r.wake)
}

// note has the owner log why a node is kept out, or that two members claim to be it.
func (r *newsroom) note(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unread.notes) < unreadBound {
		r.unread.notes[name] = err
	}
	wake.Up(r.wake)
}

// bury takes the nodes of incarnations for gone until there are news of them.
func (r *newsroom) bury(incarnations []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.nodes {
		if name != r.self && slices.Contains(incarnations, n.peer.Incarnation) {
			r.publish(name, nil)
		}
	}
}

// knows reports whether a node with that metadata was let in before.
func (r *newsroom) knows(name string, meta []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[name]
	return n != nil && n.meta != nil && string(n.meta) == string(meta)
}

// meet takes a node that memberlist lists, with its metadata, and publishes it as it is
// known by its latest news.
func (r *newsroom) meet(name string, meta []byte, p peer, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodeLocked(name)
	latest := statusOf(n.peer.Member, n.version)
	n.meta, n.peer = slices.Clone(meta), p
	if n.version > version {
		latest.update(&n.peer.Member)
	} else {
		n.version = version
	}
	if s, heard := r.other[name]; heard {
		delete(r.other, name)
		r.learn(name, n, s)
	}
	r.publish(name, new(n.peer))
}

func (r *newsroom) nodeLocked(name string) *node {
	if r.nodes[name] == nil {
		r.nodes[name] = new(node)
	}
	return r.nodes[name]
}

// learn takes the status of a node, unless it is an old one.
func (r *newsroom) learn(name string, n *node, s status) (fresh bool) {
	if s.version <= n.version {
		return false
	}
	s.update(&n.peer.Member)
	n.version, n.news = s.version, encodeNews(name, s)
	return true
}

// part forgets a node that is gone. If it was taken for dead by mistake, its news may be
// needed again.
func (r *newsroom) part(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[name]; n != nil {
		delete(r.nodes, name)
		n.repeats = 0
		r.keep(name, statusOf(n.peer.Member, n.version))
	}
	r.publish(name, nil)
}

func (r *newsroom) keep(name string, s status) {
	if old, heard := r.other[name]; heard && old.version >= s.version || !heard && len(r.other) >= otherBound {
		return
	}
	r.other[name] = s
}

// forget drops the news of nodes that are not listed.
func (r *newsroom) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.other)
}

// tell spreads a status of this member. The channel is closed when everything is sent, at once if
// there are no peers.
func (r *newsroom) tell(s status) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodeLocked(r.self)
	n.version, n.news = s.version, encodeNews(r.self, s)
	n.endNews()
	done := make(chan struct{})
	n.done = done
	if len(r.nodes) > 1 {
		r.repeat(n)
	} else {
		n.endNews()
	}
	return done
}

// hear takes a message, and publishes the node that it is about if it says something new.
func (r *newsroom) hear(message []byte, repeat bool) {
	name, s, err := decodeNews(message)
	if err != nil || name == r.self {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[name]
	if n == nil {
		r.keep(name, s)
		return
	}
	if !r.learn(name, n, s) {
		return
	}
	if repeat {
		r.repeat(n)
	}
	r.publish(name, new(n.peer))
}

// repeat queues a node's news before those already sent. If n members repeat what they hear to r
// others each, one of them misses it with a probability of e^-r.
func (r *newsroom) repeat(n *node) {
	queued := n.repeats > 0
	n.repeats = 4 + bits.Len(uint(len(r.nodes)))
	if !queued {
		r.queue = slices.Insert(r.queue, 0, n)
	}
	r.stir()
}

func (n *node) endNews() {
	if n.done != nil {
		close(n.done)
		n.done = nil
	}
}

// next returns news to send, of at most limit bytes with the overhead of each.
func (r *newsroom) next(overhead, limit int) (messages [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var again []*node
	i := 0
	for ; i < len(r.queue); i++ {
		n := r.queue[i]
		if n.repeats == 0 {
			continue
		}
		if limit -= len(n.news) + overhead; limit < 0 {
			break
		}
		messages = append(messages, n.news)
		if n.repeats--; n.repeats > 0 {
			again = append(again, n)
		} else {
			n.endNews()
		}
	}
	r.queue = append(slices.Delete(r.queue, 0, i), again...)
	return messages
}

// others returns the addresses of the other nodes, in random order. memberlist's own list of them is not safe to read.
func (r *newsroom) others() (all []memberlist.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.nodes {
		if name != r.self {
			all = append(all, memberlist.Address{Addr: n.peer.Gossip, Name: name})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// batch returns news of at most that many bytes as one message; nil for none.
func (r *newsroom) batch(limit int) (b []byte) {
	for _, message := range r.next(2, limit) {
		if b == nil {
			b = append(b, batchMark)
		}
		b = binary.AppendUvarint(b, uint64(len(message)))
		b = append(b, message...)
	}
	return b
}

// hearAll takes a message from another member: news, or a batch of them.
func (r *newsroom) hearAll(message []byte) {
	if len(message) == 0 || message[0] != batchMark {
		r.hear(message, true)
		return
	}
	each(message[1:], func(message []byte) { r.hear(message, true) })
}

// keepPlacements takes the message with placements that exchanges bring to others.
func (r *newsroom) keepPlacements(message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.placed = message
}

// hearPlaced takes a message with placements, unless this member tells others the same.
func (r *newsroom) hearPlaced(message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bytes.Equal(r.placed, message) {
		r.unread.placed = slices.Clone(message)
		wake.Up(r.wake)
	}
}

// all returns the placements and the news of each node, each after its length.
func (r *newsroom) all() (b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.placed != nil {
		b = append(binary.AppendUvarint(b, uint64(len(r.placed))), r.placed...)
	}
	for _, n := range r.nodes {
		if len(n.news) == 0 {
			continue // its metadata say it all
		}
		b = binary.AppendUvarint(b, uint64(len(n.news)))
		b = append(b, n.news...)
	}
	return b
}

// each calls f with each message of what all or batch has returned.
func each(b []byte, f func(message []byte)) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return
		}
		f(b[size : size+int(n)])
		b = b[size+int(n):]
	}
}
