package ownership

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// placeTries is how often a change of the placements is tried while others change them too.
const placeTries = 5

// seePlacements passes on the placements that the store shows, at first and when they have changed.
func (s *Shell) seePlacements(snapshot records.Snapshot) {
	if s.cfg.OnPlacements == nil || s.placed != nil && *s.placed == snapshot.Placements {
		return
	}
	s.placed = new(snapshot.Placements)
	if err := s.cfg.OnPlacements(*s.placed, snapshot.Version); err != nil {
		s.cfg.Logger.Error("cannot go by the placements in the store", "worker", s.cfg.Name, "error", err)
	}
}

// Place is Worker.Place.
func (s *Shell) Place(ctx context.Context, partition int, name string) error {
	if partition < 0 || partition >= len(s.cfg.Keys.Parts) {
		return fmt.Errorf("worker: there is no partition %d: they go from 0 to %d", partition, len(s.cfg.Keys.Parts)-1)
	}
	view := s.cfg.Members.View()
	if !slices.ContainsFunc(view.Workers(), func(m ring.Member) bool { return m.Name == name }) && name != "" {
		return fmt.Errorf("%w: %q is not on the ring", status.ErrNoWorker, name)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	from := view.Placements
	for range placeTries {
		list, err := placement.Decode(from)
		if err != nil {
			return fmt.Errorf("worker: the placements in the store: %w", err)
		}
		list = slices.DeleteFunc(list, func(p placement.Placement) bool { return p.Partition == partition })
		if name != "" {
			list = append(list, placement.Placement{Partition: partition, Worker: name, Pinned: true})
		}
		if len(list) > placement.Most {
			return fmt.Errorf("worker: %d partitions are placed, and no more can be", placement.Most)
		}
		to, began := placement.Encode(list), s.cfg.Keys.Now()
		now, err := s.cfg.Store.Place(ctx, from, to)
		s.calls.count(callPlace, s.cfg.Keys.Now()-began, err)
		if err != nil {
			return fmt.Errorf("worker: placing partition %d: %w", partition, err)
		}
		if now == to {
			return nil
		}
		from = now
	}
	return fmt.Errorf("worker: placing partition %d: others change the placements all the time; try again", partition)
}
