// Package placement decides which partitions should have another owner than the ring says, so that no worker has much more
// load than others. It has no clock, network or randomness: its host reads the loads, asks a [Planner] once in a round, and
// stores the answer. A placement only says who should own a partition, so a wrong plan costs moves, and never exclusion.
//
// A Planner minimises the largest load of a worker in relation to its fair share, which is the mean by weight. The
// partition of one hot key can be larger. Its worker then has this partition as its fair share, and the others divide the
// rest. Moves cost, so a Planner acts only if a worker exceeds its fair share by more than [Config].Tolerance, stops at half of
// that, and moves a bounded part of the load in a minute.
//
// Files: placement.go keeps placements as text, planner.go has the memory of a Planner, balance.go is one round.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Lock is the key that the worker holds that balances.
const Lock = "keyway balancer"

// Limits of the placements of a cluster.
const (
	Most         = 1024      // placements
	maxPartition = 1<<20 - 1 // as in ring.Config
	maxName      = 128       // bytes, as in ring/gossip
)

// ErrText means that Encode does not return such a text.
var ErrText = errors.New("placement: not a list of placements")

// Placement is an exception from the ring: the worker that should own a partition.
type Placement struct {
	Partition int
	Worker    string // its name
	Pinned    bool   // by hand: the balancer leaves it as it is
}

// Encode returns the text of placements of different partitions. Equal sets have equal texts; no placements have "". A worker
// has a line with its quoted name, its first partition and the distances to the next ones. "!" marks a pinned one:
//
//	"worker-1" 17 3! 20
func Encode(list []Placement) string {
	byWorker := map[string][]Placement{}
	for _, p := range slices.SortedFunc(slices.Values(list), byPartition) {
		byWorker[p.Worker] = append(byWorker[p.Worker], p)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byWorker)) {
		b.WriteString(strconv.Quote(name))
		last := 0
		for _, p := range byWorker[name] {
			fmt.Fprintf(&b, " %d", p.Partition-last)
			if last = p.Partition; p.Pinned {
				b.WriteByte('!')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Decode returns the placements of a text by Encode, sorted by partition. It fails with ErrText for any other text, and for
// more than Most placements.
func Decode(text string) ([]Placement, error) {
	var list []Placement
	for line := range strings.Lines(text) {
		quoted, _ := strconv.QuotedPrefix(line)
		name, _ := strconv.Unquote(quoted)
		if name == "" || len(name) > maxName {
			return nil, fmt.Errorf("%w: a line begins with a name of %d bytes in quotes, want 1 to %d", ErrText, len(name), maxName)
		}
		partition := 0
		for field := range strings.FieldsSeq(line[len(quoted):]) {
			number, pinned := strings.CutSuffix(field, "!")
			distance, err := strconv.ParseUint(number, 10, 20)
			if partition += int(distance); err != nil || partition > maxPartition || len(list) == Most {
				return nil, fmt.Errorf("%w: %q of %q is out of range, or the text has more than %d", ErrText, field, name, Most)
			}
			list = append(list, Placement{Partition: partition, Worker: name, Pinned: pinned})
		}
	}
	slices.SortFunc(list, byPartition)
	if len(slices.CompactFunc(slices.Clone(list), func(p, q Placement) bool { return p.Partition == q.Partition })) < len(list) {
		return nil, fmt.Errorf("%w: a partition is placed twice", ErrText)
	}
	if Encode(list) != text {
		return nil, fmt.Errorf("%w: Encode writes another text for them", ErrText)
	}
	return list, nil
}

func byPartition(p, q Placement) int { return cmp.Compare(p.Partition, q.Partition) }
