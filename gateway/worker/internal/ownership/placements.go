package ownership

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
)

// noteTries is how often a change of a note is tried while others change it too.
const noteTries = 5

// seePlacements passes on the placements that the store shows, at first and when they have changed.
func (s *Shell) seePlacements(snapshot records.Snapshot) {
	if s.cfg.OnPlacements == nil || s.placed != nil && *s.placed == snapshot.Notes[records.Placements] {
		return
	}
	s.placed = new(snapshot.Notes[records.Placements])
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
	if names := view.Table.Members(); name != "" && !slices.Contains(names, name) {
		return fmt.Errorf("%w on the ring: %q; there are %q", status.ErrNoWorker, name, names[:min(len(names), 20)])
	}
	err := s.editNote(ctx, records.Placements, view.Placements, func(text string) (string, error) {
		list, err := placement.Decode(text)
		if err != nil { // so nobody goes by them
			s.cfg.Logger.Warn("the placements in the store are replaced", "worker", s.cfg.Name, "error", err)
		}
		list = slices.DeleteFunc(list, func(p placement.Placement) bool { return p.Partition == partition })
		if name != "" {
			list = append(list, placement.Placement{Partition: partition, Worker: name, Pinned: true})
		}
		if len(list) > placement.Most {
			return "", fmt.Errorf("%d partitions are placed, and no more can be", placement.Most)
		}
		return placement.Encode(list), nil
	})
	if err != nil {
		return fmt.Errorf("worker: placing partition %d: %w", partition, err)
	}
	return nil
}

// editNote makes edit's result of a note's text the note in the store. The text is known at first, and afterwards what
// others have made of it meanwhile.
func (s *Shell) editNote(ctx context.Context, note records.Note, known string, edit func(text string) (string, error)) error {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for range noteTries {
		to, err := edit(known)
		if err != nil {
			return err
		}
		began, from := s.cfg.Keys.Now(), known
		known, err = s.cfg.Store.Replace(bounded, note, from, to)
		if ctx.Err() == nil { // or else the caller has left, which says nothing of the store
			s.calls.count(callReplace, s.cfg.Keys.Now()-began, err)
		}
		if err != nil || known == to {
			return err
		}
	}
	return fmt.Errorf("others change the %v in the store all the time; try again", note)
}
