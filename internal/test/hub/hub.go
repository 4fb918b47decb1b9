// Package hub is a membership without gossip, for tests in one process: every
// member sees every change at once.
package hub

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/ring"
)

// Hub joins members. Make one with [New].
type Hub struct {
	// Delay is how long after a change its view comes, together with the changes until then.
	// It must be set before members join.
	Delay    time.Duration
	settings ring.Settings

	mu       sync.Mutex // guards what follows
	delayed  bool       // a view comes soon
	builder  *ring.Builder
	members  map[*Handle]ring.Member
	apart    map[*Handle]bool // members that see only themselves
	text     string           // of the placements
	placed   map[int]string
	conflict error
	view     *ring.View // of who is no member
	views    map[*Handle]*ring.View
	changed  chan struct{}
}

// Handle is one member's connection to the hub; it implements
// gateway.Members.
type Handle struct {
	Keys [][]byte    // its secrets; not to be changed once the member is in use
	Mute atomic.Bool // it answers no pings
	hub  *Hub
}

// New returns a hub without members. It panics if the settings are not those of a ring.
func New(settings ring.Settings) *Hub {
	builder, err := ring.NewBuilder(settings.Ring)
	if err != nil {
		panic(fmt.Errorf("hub: %w", err))
	}
	h := &Hub{
		settings: settings.WithDefaults(), builder: builder,
		members: make(map[*Handle]ring.Member), apart: make(map[*Handle]bool), changed: make(chan struct{}),
	}
	h.rebuildLocked()
	return h
}

// Of makes a hub of these members, with the default settings. It returns the handle of a caller that is no member.
func Of(members ...ring.Member) *Handle {
	m := &Handle{hub: New(ring.Settings{})}
	m.Set(members...)
	return m
}

// Join adds a member.
func (h *Hub) Join(m ring.Member) *Handle {
	handle := &Handle{hub: h}
	h.change(func() { h.members[handle] = m })
	return handle
}

// Self returns the member.
func (m *Handle) Self() ring.Member {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	return m.hub.members[m]
}

// View returns what the member sees: all members that use its store.
func (m *Handle) View() *ring.View {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	if view := m.hub.views[m]; view != nil {
		return view
	}
	return m.hub.view
}

// Settings returns what all members share.
func (m *Handle) Settings() ring.Settings {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	s := m.hub.settings
	s.Store = m.hub.members[m].StoreID
	return s
}

// Secrets returns the keys of the member, for every purpose.
func (m *Handle) Secrets(string) [][]byte { return m.Keys }

// Changed returns a channel that is closed at the next change of View.
func (m *Handle) Changed() <-chan struct{} {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	return m.hub.changed
}

// Announce changes the member, but not its name and role.
func (m *Handle) Announce(update func(*ring.Member)) error {
	m.hub.change(func() {
		old := m.hub.members[m]
		self := old
		update(&self)
		self.Name, self.Role = old.Name, old.Role
		m.hub.members[m] = self
	})
	return nil
}

// Ping asks a member whether it lives.
func (m *Handle) Ping(other ring.Member) bool {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	for handle, member := range m.hub.members {
		if member.Incarnation == other.Incarnation {
			return !handle.Mute.Load()
		}
	}
	return false
}

// Place makes all members go by other placements.
func (m *Handle) Place(text string, _ int64) error {
	list, err := placement.Decode(text)
	if err != nil {
		return err
	}
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	if text == m.hub.text {
		return nil
	}
	m.hub.text, m.hub.placed = text, make(map[int]string)
	for _, p := range list {
		m.hub.placed[p.Partition] = p.Worker
	}
	m.hub.changedLocked()
	return nil
}

// Isolate cuts the member off from the others, or no longer.
func (m *Handle) Isolate(apart bool) { m.hub.change(func() { m.hub.apart[m] = apart }) }

// Vanish removes the member, as gossip does when it has died.
func (m *Handle) Vanish() { m.hub.change(func() { delete(m.hub.members, m) }) }

// Set replaces all other members.
func (m *Handle) Set(members ...ring.Member) {
	m.hub.change(func() {
		maps.DeleteFunc(m.hub.members, func(other *Handle, _ ring.Member) bool { return other != m })
		for _, other := range members {
			m.hub.members[&Handle{hub: m.hub}] = other
		}
	})
}

// Conflict makes all members learn that their keys conflict with another one's, or that they do not.
func (m *Handle) Conflict(err error) { m.hub.change(func() { m.hub.conflict = err }) }

// change makes new views after an update.
func (h *Hub) change(update func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	update()
	h.changedLocked()
}

// changedLocked makes new views, now or after Delay.
func (h *Hub) changedLocked() {
	if h.Delay == 0 {
		h.rebuildLocked()
		return
	}
	if !h.delayed {
		h.delayed = true
		time.AfterFunc(h.Delay, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.delayed = false
			h.rebuildLocked()
		})
	}
}

func (h *Hub) rebuildLocked() {
	var members []ring.Member // that see each other
	for handle, m := range h.members {
		if !h.apart[handle] {
			members = append(members, m)
		}
	}
	h.view = h.viewOf(ring.Member{}, members)
	h.views = make(map[*Handle]*ring.View)
	together := map[ring.StoreID]*ring.View{0: h.view} // of members that use that store
	for handle, self := range h.members {
		view := together[self.StoreID]
		if h.apart[handle] {
			view = h.viewOf(self, []ring.Member{self})
		} else if view == nil {
			view = h.viewOf(self, members)
			together[self.StoreID] = view
		}
		h.views[handle] = view
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Hub) viewOf(self ring.Member, members []ring.Member) *ring.View {
	members, refused := ring.Agreeing(self, members)
	var names []string
	for _, m := range ring.ActiveWorkers(members) {
		names = append(names, m.Name)
	}
	table, err := h.builder.Table(names)
	if err != nil {
		panic(fmt.Errorf("hub: %w", err))
	}
	table = table.Place(h.placed)
	digest := ring.NewView(table, members).Digest
	for i := range members {
		members[i].View = digest
	}
	view := ring.NewView(table, members)
	view.Refused, view.Placements, view.KeyConflict = refused, h.text, h.conflict
	return view
}
