// Package hub is a membership without gossip, for tests in one process: every
// member sees every change at once.
package hub

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/ring"
)

// Hub joins members. Make one with [New].
type Hub struct {
	settings ring.Settings

	mu      sync.Mutex // guards what follows
	builder *ring.Builder
	members map[*Handle]ring.Member
	view    *ring.View
	changed chan struct{}
}

// Handle is one member's connection to the hub; it implements
// gateway.Membership.
type Handle struct{ hub *Hub }

// New returns a hub without members.
func New(settings ring.Settings) (*Hub, error) {
	builder, err := ring.NewBuilder(settings.Ring)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{settings: settings.WithDefaults(), builder: builder, members: make(map[*Handle]ring.Member), changed: make(chan struct{})}
	return h, h.rebuild()
}

// Join adds a member.
func (h *Hub) Join(m ring.Member) (*Handle, error) {
	handle := &Handle{hub: h}
	return handle, handle.Announce(func(self *ring.Member) { *self = m })
}

// View returns the view that all members share.
func (m *Handle) View() *ring.View {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	return m.hub.view
}

// Settings returns what all members share.
func (m *Handle) Settings() ring.Settings { return m.hub.settings }

// Changed returns a channel that is closed at the next change of View.
func (m *Handle) Changed() <-chan struct{} {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	return m.hub.changed
}

// Announce changes the member.
func (m *Handle) Announce(update func(*ring.Member)) error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	self := m.hub.members[m]
	update(&self)
	m.hub.members[m] = self
	return m.hub.rebuild()
}

// Vanish removes the member, as gossip does when it has died.
func (m *Handle) Vanish() error {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	delete(m.hub.members, m)
	return m.hub.rebuild()
}

func (h *Hub) rebuild() error {
	members := slices.Collect(maps.Values(h.members))
	var names []string
	for _, m := range ring.ActiveWorkers(members) {
		names = append(names, m.Name)
	}
	table, err := h.builder.Table(names)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	h.view = ring.NewView(table, members)
	for i := range h.view.Members {
		h.view.Members[i].View = h.view.Digest
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}
