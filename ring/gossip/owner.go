package gossip

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyway-go/keyway/ring"
)

const (
	// gatherLeast, or gatherEach for each member, if that is longer, is how long the owner
	// gathers news before it computes a view. It begins again when more members join or leave the ring.
	gatherLeast = 10 * time.Millisecond
	gatherEach  = 5 * time.Millisecond

	// spreadLeast and spreadEach say how long a new digest must stay the same before it is spread.
	// While members join one after the other, each would otherwise tell all others every digest in
	// between.
	spreadLeast = 50 * time.Millisecond
	spreadEach  = 5 * time.Millisecond

	// calmMost is how many times as long the owner waits for either, at most.
	calmMost = 4

	// duplicateAge is how long workers may share a name or an address before a warning: it takes some
	// seconds until a restarted process's former life is detected as dead.
	duplicateAge = 10 * time.Second
)

// publication is a view, this member in it, and its keys in force.
type publication struct {
	self   ring.Member
	source string
	view   *ring.View
}

// request asks the owner to do something, once it has taken the news into the view.
type request struct {
	do    func(*owner) error
	reply chan error
}

// askOwner returns when the owner has carried out do.
func (c *Cluster) askOwner(do func(*owner) error) error {
	r := request{do, make(chan error, 1)}
	select {
	case c.requests <- r:
		return <-r.reply
	case <-c.owned:
		return errClosed
	}
}

// owner holds what this member knows of the cluster. Only its goroutine uses it: it takes news,
// requests and announcements, and publishes views.
type owner struct {
	c          *Cluster
	builder    *ring.Builder
	self       ring.Member
	version    uint64          // of the status that the peers were told last
	told       ring.Member     // self, likewise
	lasting    metadata        // that memberlist was given last
	epoch      int64           // highest Epoch of any member so far
	inForce    keys            // of this member
	announced  keys            // as the peers are told
	peers      map[string]peer // by node
	table      *ring.Table
	placed     placements
	active     []string                // names in table
	duplicates map[[2]string]time.Time // what warnOfDuplicates has found, and since when
	several    bool                    // warned that active workers use several stores
	throttle   throttle
}

// peer is another member.
type peer struct {
	ring.Member
	keys keys
}

func newOwner(c *Cluster, builder *ring.Builder, self ring.Member, k keys) *owner {
	return &owner{
		c:          c,
		lasting:    newMetadata(self, k, c.settings, 0).lasting(),
		builder:    builder,
		self:       self,
		inForce:    k,
		announced:  k,
		peers:      make(map[string]peer),
		duplicates: make(map[[2]string]time.Time),
	}
}

func (o *owner) run() {
	defer close(o.c.owned)
	var gather, spread calm
	turns := 0           // of the newsroom, when gather was disturbed last
	var news ring.Member // what spread is for
	warnings, minute := time.NewTicker(duplicateAge/2), time.NewTicker(time.Minute)
	defer warnings.Stop()
	defer minute.Stop()
	for {
		select {
		case <-o.c.news.wake:
			if n := o.c.news.turned(); gather.passed == nil || n != turns {
				turns = n
				gather.disturb(o.scaled(gatherLeast, gatherEach))
			}
		case <-gather.passed:
			gather = calm{}
			o.catchUp()
		case r := <-o.c.requests:
			r.reply <- r.do(o)
		case <-spread.passed:
			o.spread()
		case <-warnings.C:
			o.warnOfDuplicates(time.Now())
			o.warnOfKeys(time.Now())
		case <-minute.C:
			o.c.news.forget()
		case <-o.c.ctx.Done():
			return
		}
		switch {
		case o.self.View == o.told.View && o.self.Epoch == o.told.Epoch:
			spread, news = calm{}, ring.Member{}
		case news != o.self:
			news = o.self
			spread.disturb(o.scaled(spreadLeast, spreadEach))
		}
	}
}

// calm is a wait for a time without disturbance.
type calm struct {
	since  time.Time        // of the first disturbance
	passed <-chan time.Time // nil before that
}

// disturb starts the wait again, unless it has lasted calmMost times as long.
func (c *calm) disturb(wait time.Duration) {
	now := time.Now()
	if c.passed == nil {
		c.since = now
	}
	c.passed = time.After(max(0, min(wait, c.since.Add(calmMost*wait).Sub(now))))
}

// scaled returns the time that something takes in a cluster of this size.
func (o *owner) scaled(least, each time.Duration) time.Duration {
	return max(least, time.Duration(len(o.peers)+1)*each)
}

// change changes this member's description.
func (o *owner) change(change func(*ring.Member)) error {
	next := o.self
	change(&next)
	next.Name, next.Role, next.Gossip, next.View, next.TLS = o.self.Name, o.self.Role, o.self.Gossip, o.self.View, o.self.TLS
	if err := validMember(next); err != nil {
		return err
	}
	if _, err := newMetadata(next, o.announced, o.c.settings, o.version).encode(); err != nil {
		return err
	}
	if next != o.self {
		o.self = next
		o.publish()
		o.spread()
	}
	return nil
}

// spread sends this member's description to the peers: its status as news, the rest, if that has
// changed, by memberlist. It does not wait.
func (o *owner) spread() {
	o.version++
	o.told = o.self
	o.c.news.tell(statusOf(o.self, o.version))
	md := newMetadata(o.self, o.announced, o.c.settings, o.version)
	if md.lasting() == o.lasting {
		return
	}
	meta, err := md.encode()
	if err != nil { // its length was checked with the last change
		o.c.log.Error("cannot describe this member to its peers", "error", err)
		return
	}
	o.lasting = md.lasting()
	o.c.meta.Store(&meta)
	_ = o.c.list.UpdateNode(1) // fails because it waits no longer; 0 is for no limit
}

// catchUp takes the news into the view.
func (o *owner) catchUp() {
	before := o.peers
	peers, notes, message := o.c.news.take()
	o.peers = peers
	for node, m := range peers {
		if _, known := before[node]; !known {
			o.c.log.Info("member joined", "member", m.Name, "role", m.Role, "state", m.State, "addr", m.Addr, "gossip", m.Gossip)
		}
	}
	for node, m := range before {
		if _, there := peers[node]; !there {
			o.noteEnd(m)
		}
	}
	if placed := message != nil && o.hearPlacements(message); placed || !maps.Equal(peers, before) {
		o.publish()
	}
	now := time.Now()
	for node, err := range notes {
		switch {
		case errors.Is(err, ErrRefused):
			if o.throttle.pass(err.Error(), now) {
				o.c.log.Error("a member was kept out of the cluster", "error", err)
			}
		case o.throttle.pass(node, now):
			o.c.log.Warn("two members claim to be one node", "error", err)
		}
	}
}

func (o *owner) noteEnd(m peer) {
	if m.State == ring.StateLeaving {
		o.c.log.Info("member left", "member", m.Name, "role", m.Role, "gossip", m.Gossip)
		return
	}
	o.c.lost.Add(1)
	o.c.log.Warn("member lost: it does not answer", "member", m.Name, "role", m.Role, "gossip", m.Gossip)
	o.c.joiner.add([]string{m.Gossip}) // it may be behind a cut that heals
}

// publish computes the view and replaces the current one if they differ.
func (o *owner) publish() {
	o.keepEpoch()
	all := make([]ring.Member, 0, len(o.peers)+1)
	for _, p := range o.peers {
		all = append(all, p.Member)
	}
	members, refused := ring.Agreeing(o.self, append(all, o.self))
	o.retable(ring.ActiveWorkers(members))
	table := o.table.Place(o.placed.owners)
	view := ring.NewView(table, members)
	if view.Digest != o.self.View {
		o.self.View = view.Digest
		members[len(members)-1] = o.self
		view = ring.NewView(table, members)
	}
	view.Refused, view.KeyConflict, view.Placements = refused, o.keyConflict(), o.placed.text
	o.warnOfRefused(members, refused)
	old := o.c.current.Load()
	if old != nil && old.source == o.inForce.source && old.view.Digest == view.Digest && slices.Equal(old.view.Members, view.Members) && old.view.Placements == view.Placements &&
		slices.Equal(old.view.Refused, refused) && fmt.Sprint(old.view.KeyConflict) == fmt.Sprint(view.KeyConflict) {
		return
	}
	o.c.current.Store(&publication{o.self, o.inForce.source, view})
	if old != nil {
		o.c.views.Add(1)
		o.c.changed.End()
	}
	o.warnOfKeys(time.Now())
}

// keepEpoch makes this member announce the highest epoch when the member that did so is gone. The
// highest epoch must not be forgotten while any process of the cluster lives.
func (o *owner) keepEpoch() {
	told := o.self.Epoch
	for _, m := range o.peers {
		told = max(told, m.Epoch)
	}
	o.epoch = max(o.epoch, told)
	if told < o.epoch {
		o.self.Epoch = o.epoch
	}
}

// warnOfRefused says which members use another store than those of the view.
func (o *owner) warnOfRefused(members, refused []ring.Member) {
	ours := o.c.settings
	ours.Store = o.self.StoreID
	if workers := ring.ActiveWorkers(refused); ours.Store == 0 && len(workers) > 0 && !o.several {
		o.several = true
		o.c.log.Warn("active workers use several stores, and this member follows the oldest worker's: give all members of a cluster the same --store or --redis",
			"followed", followed(members), "kept out", workers[0].StoreID, "worker", workers[0].Name)
	}
	for _, m := range refused {
		theirs := ours
		theirs.Store = m.StoreID
		if d, differ := ours.Compare(theirs); differ {
			if err := refusal(d, o.self, m); o.throttle.pass(err.Error(), time.Now()) {
				o.c.log.Error("a member was kept out of the cluster", "error", err)
			}
		}
	}
}

// followed is the store that the active workers of a view use.
func followed(members []ring.Member) ring.StoreID {
	for _, m := range ring.ActiveWorkers(members) {
		if m.StoreID != 0 {
			return m.StoreID
		}
	}
	return 0
}

// retable makes the table that of the active workers. One that cannot be made
// leaves the old one, whose owners the view then checks against its members.
func (o *owner) retable(workers []ring.Member) {
	names := make([]string, len(workers))
	for i, w := range workers {
		names[i] = w.Name
	}
	if o.table != nil && slices.Equal(names, o.active) {
		return
	}
	table, err := o.builder.Table(names)
	if err != nil {
		o.c.log.Error("the ring keeps its former members", "error", err)
		return
	}
	o.table, o.active = table, names
}

// Warnings of workers that share what each should have for itself.
const (
	sameName = "several workers have one name, and only one of them is on the ring: give each its own --name"
	sameAddr = "several workers say that routers reach them at one address, where one of them listens at most: give each its own --advertise"
)

// warnOfDuplicates finds workers that were started with one name or one address.
func (o *owner) warnOfDuplicates(now time.Time) {
	shared := make(map[[2]string][]string) // gossip addresses, by warning and what is shared
	for _, m := range append(slices.Collect(maps.Values(o.peers)), peer{Member: o.self}) {
		if m.Role == ring.RoleWorker {
			name, addr := [2]string{sameName, m.Name}, [2]string{sameAddr, m.Addr}
			shared[name], shared[addr] = append(shared[name], m.Gossip), append(shared[addr], m.Gossip)
		}
	}
	maps.DeleteFunc(shared, func(_ [2]string, at []string) bool { return len(at) < 2 })
	maps.DeleteFunc(o.duplicates, func(of [2]string, _ time.Time) bool { return shared[of] == nil })
	for of, at := range shared {
		if _, known := o.duplicates[of]; !known {
			o.duplicates[of] = now
		}
		if now.Sub(o.duplicates[of]) >= duplicateAge && o.throttle.pass(of[0]+of[1], now) {
			o.c.log.Warn(of[0], "shared", of[1], "gossip", at)
		}
	}
}
