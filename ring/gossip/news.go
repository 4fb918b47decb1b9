package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
	nodes  map[string]*node // this one, the listed ones, and those that may be listed soon, or again
	listed int              // of nodes
	turns  int              // how often a node has joined or left the ring
	placed []byte           // message with the placements in force; nil for none
	notes  map[string]error // that the owner has not taken, by node; bounded
	heard  []byte           // message with placements that the owner has not taken; nil for none
}

// node is one of memberlist's. One that is not listed has only what its news say.
type node struct {
	listed  bool   // by memberlist
	buried  bool   // its process is dead, unless there are further news of it
	meta    []byte // metadata with which it was let in; nil unless listed
	peer    peer
	version uint64 // of the status in peer
	news    []byte // that were heard last; nil for none
	repeats int    // still to do
}

// lives reports whether the node is a member for all that is known.
func (n *node) lives() bool { return n.listed && !n.buried }

func (n *node) onRing() bool {
	return n.lives() && n.peer.Role == ring.RoleWorker && n.peer.State == ring.StateActive
}

const (
	unlistedBound = 1024 // on nodes that are not listed
	notesBound    = 64   // on notes, which strangers can cause
)

func newNewsroom(self string, stir func()) *newsroom {
	return &newsroom{self: self, wake: make(chan struct{}, 1), stir: stir, nodes: make(map[string]*node), notes: make(map[string]error)}
}

// take returns the other members as they are now, and what the owner has not taken of the rest.
func (r *newsroom) take() (peers map[string]peer, notes map[string]error, placed []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	peers = make(map[string]peer, r.listed)
	for name, n := range r.nodes {
		if n.lives() {
			peers[name] = n.peer
		}
	}
	notes, placed = r.notes, r.heard
	r.notes, r.heard = make(map[string]error), nil
	return peers, notes, placed
}

// turned returns how often nodes have joined or left the ring so far.
func (r *newsroom) turned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turns
}

// changed has the owner take a node that was on the ring, or was not.
func (r *newsroom) changed(n *node, wasOnRing bool) {
	if n.onRing() != wasOnRing {
		r.turns++
	}
	wake.Up(r.wake)
}

// note has the owner log why a node is kept out, or that two members claim to be it.
func (r *newsroom) note(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.notes) < notesBound {
		r.notes[name] = err
	}
	wake.Up(r.wake)
}

// bury takes the nodes of incarnations for gone until there are news of them.
func (r *newsroom) bury(incarnations []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.nodes {
		if name != r.self && slices.Contains(incarnations, n.peer.Incarnation) {
			was := n.onRing()
			n.buried = true
			r.changed(n, was)
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

// meet takes a node that memberlist lists, with its metadata. Its latest news count more.
func (r *newsroom) meet(name string, meta []byte, p peer, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.node(name)
	latest, was := statusOf(n.peer.Member, n.version), n.onRing()
	if !n.listed {
		r.listed++
	}
	n.listed, n.buried, n.meta, n.peer = true, false, slices.Clone(meta), p
	if n.version > version {
		latest.update(&n.peer.Member)
	} else {
		n.version = version
	}
	r.changed(n, was)
}

func (r *newsroom) node(name string) *node {
	if r.nodes[name] == nil {
		r.nodes[name] = new(node)
	}
	return r.nodes[name]
}

// part takes a node that is gone off the list. If it was taken for dead by mistake, its news may be
// needed again.
func (r *newsroom) part(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[name]
	if n == nil || !n.listed {
		return
	}
	was := n.onRing()
	n.listed, n.meta, n.repeats = false, nil, 0
	r.listed--
	r.changed(n, was)
}

// forget drops the nodes that are not listed.
func (r *newsroom) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.nodes, func(name string, n *node) bool { return !n.listed && name != r.self })
}

// tell spreads a status of this member.
func (r *newsroom) tell(s status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.node(r.self)
	n.version, n.news = s.version, encodeNews(r.self, s)
	r.repeat(n)
}

// hear takes a message, unless it says nothing new.
func (r *newsroom) hear(message []byte, repeat bool) {
	name, s, err := decodeNews(message)
	if err != nil || name == r.self {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes[name] == nil && len(r.nodes)-r.listed >= unlistedBound {
		return
	}
	n := r.node(name)
	if s.version <= n.version {
		return
	}
	was := n.onRing()
	s.update(&n.peer.Member)
	n.version, n.news, n.buried = s.version, encodeNews(name, s), false
	if !n.listed {
		return
	}
	if repeat {
		r.repeat(n)
	}
	r.changed(n, was)
}

// repeat has a node's news sent before those already sent. If n members repeat what they hear to r
// others each, one of them misses it with a probability of e^-r.
func (r *newsroom) repeat(n *node) {
	n.repeats = 4 + bits.Len(uint(r.listed+1))
	r.stir()
}

// next returns news to send, of at most limit bytes with the overhead of each: fresh ones first.
func (r *newsroom) next(overhead, limit int) (messages [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var queue []*node
	for _, n := range r.nodes {
		if n.repeats > 0 {
			queue = append(queue, n)
		}
	}
	slices.SortFunc(queue, func(a, b *node) int { return b.repeats - a.repeats })
	for _, n := range queue {
		if limit -= len(n.news) + overhead; limit < 0 {
			break
		}
		messages = append(messages, n.news)
		n.repeats--
	}
	return messages
}

// others returns the addresses of the other nodes, in random order. memberlist's own list of them is not safe to read.
func (r *newsroom) others() (all []memberlist.Address) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.nodes {
		if n.listed {
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
		r.heard = slices.Clone(message)
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
	for name, n := range r.nodes {
		if len(n.news) == 0 || !n.listed && name != r.self {
			continue // its metadata say it all, or it is gone
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
