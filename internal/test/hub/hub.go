// Package hub is a membership without gossip, for tests in one process: every
// member sees every change at once.
package hub

import (
	"fmt"
	"sync"
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

	mu      sync.Mutex // guards what follows
	delayed bool       // a view comes soon
	builder *ring.Builder
	members map[*Handle]ring.Member
	apart   map[*Handle]bool // members that see only themselves
	view    *ring.View       // of who is no member
	text    string           // of the placements
	placed  map[int]string
	views   map[*Handle]*ring.View
	changed chan struct{}
}

// Handle is one member's connection to the hub; it implements
// gateway.Members.
type Handle struct {
	Keys [][]byte // its secrets; not to be changed once the member is in use
	hub  *Hub
}

// New returns a hub without members.
func New(settings ring.Settings) (*Hub, error) {
	builder, err := ring.NewBuilder(settings.Ring)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{settings: settings.WithDefaults(), builder: builder, members: make(map[*Handle]ring.Member), apart: make(map[*Handle]bool), views: make(map[*Handle]*ring.View), changed: make(chan struct{})}
	return h, h.rebuild()
}

// Join adds a member.
func (h *Hub) Join(m ring.Member) (*Handle, error) {
	handle := &Handle{hub: h}
	return handle, handle.Announce(func(self *ring.Member) { *self = m })
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

// Announce changes the member, but for its name and role.
func (m *Handle) Announce(update func(*ring.Member)) error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	old, joined := m.hub.members[m]
	self := old
	if update(&self); joined {
		self.Name, self.Role = old.Name, old.Role
	}
	m.hub.members[m] = self
	return m.hub.changeLocked()
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
	return m.hub.changeLocked()
}

// Isolate cuts the member off from the others, or no longer.
func (m *Handle) Isolate(apart bool) error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	m.hub.apart[m] = apart
	return m.hub.changeLocked()
}

// Vanish removes the member, as gossip does when it has died.
func (m *Handle) Vanish() error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	delete(m.hub.members, m)
	return m.hub.changeLocked()
}

// changeLocked makes new views, now or after Delay.
func (h *Hub) changeLocked() error {
	if h.Delay == 0 {
		return h.rebuild()
	}
	if !h.delayed {
		h.delayed = true
		time.AfterFunc(h.Delay, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.delayed = false
			if err := h.rebuild(); err != nil {
				panic(err)
			}
		})
	}
	return nil
}

func (h *Hub) rebuild() error {
	var members []ring.Member // that see each other
	for handle, m := range h.members {
		if !h.apart[handle] {
			members = append(members, m)
		}
	}
	var err error
	if h.view, err = h.viewOf(ring.Member{}, members); err != nil {
		return err
	}
	clear(h.views)
	together := make(map[ring.StoreID]*ring.View) // of members that use that store
	for handle, self := range h.members {
		view := together[self.StoreID]
		switch {
		case h.apart[handle]:
			view, err = h.viewOf(self, []ring.Member{self})
		case view == nil:
			view, err = h.viewOf(self, members)
			together[self.StoreID] = view
		}
		if err != nil {
			return err
		}
		h.views[handle] = view
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

func (h *Hub) viewOf(self ring.Member, members []ring.Member) (*ring.View, error) {
	members, refused := ring.Agreeing(self, members)
	var names []string
	for _, m := range ring.ActiveWorkers(members) {
		names = append(names, m.Name)
	}
	table, err := h.builder.Table(names)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	table = table.Place(h.placed)
	digest := ring.NewView(table, members).Digest
	for i := range members {
		members[i].View = digest
	}
	view := ring.NewView(table, members)
	view.Refused, view.Placements = refused, h.text
	return view, nil
}
