package gossip

import (
	"encoding/binary"
	"math"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/wire/packed"
)

// placements are the exceptions from the ring that this member goes by.
type placements struct {
	version int64 // the higher one counts; 0 for none
	read    bool  // by Place, so that this member does not listen to others
	text    string
	owners  map[int]string // partition -> name of the worker that should own it
}

// Place makes the views of all members go by other placements, in package placement's form: which partitions
// should not go by the ring. Members that never call Place go by the highest version that they hear of, when
// two members next exchange all they know; that takes some seconds. The error says what is wrong with the
// text, which then names no exceptions.
func (c *Cluster) Place(text string, version int64) error {
	return c.askOwner(func(o *owner) error {
		if o.placed.read = true; text == o.placed.text {
			return nil
		}
		next, err := newPlacements(text, max(version, o.placed.version+1))
		next.read = true
		o.place(next)
		o.publish()
		return err
	})
}

func newPlacements(text string, version int64) (p placements, err error) {
	list, err := placement.Decode(text)
	p = placements{version: version, text: text, owners: make(map[int]string, len(list))}
	for _, l := range list {
		p.owners[l.Partition] = l.Worker
	}
	return p, err
}

// place takes placements for the next view, and for exchanges with other members.
func (o *owner) place(p placements) {
	o.placed = p
	o.c.news.keepPlacements(p.encode())
}

func (p placements) encode() []byte {
	return append(binary.AppendUvarint([]byte{placedMark}, uint64(p.version)), p.text...)
}

// hearPlacements takes those of another member, if they are of a higher version.
func (o *owner) hearPlacements(message []byte) (changed bool) {
	r := packed.Reader{Rest: message[1:]}
	version := int64(r.Number(math.MaxInt64))
	if r.Bad || o.placed.read || version <= o.placed.version {
		return false
	}
	p, err := newPlacements(string(r.Rest), version)
	if err != nil {
		o.c.log.Error("cannot read the placements of another member", "error", err)
	}
	o.place(p)
	return true
}
