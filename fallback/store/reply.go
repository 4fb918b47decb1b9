package store

import (
	"cmp"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// readPartitions reads groups of four: a partition, what the store keeps for it, the locks of a move,
// and the locks that the store keeps.
func readPartitions(f *stores.Fields) []records.PartitionState {
	states := []records.PartitionState{}
	f.Each(func(list *stores.Fields) { states = append(states, readPartition(list)) })
	return states
}

func readPartition(f *stores.Fields) records.PartitionState {
	p := records.PartitionState{Partition: int(f.Number())}
	kept := stores.Read(f.Text())
	p.Record = records.Record{Epoch: kept.Number(), Owner: kept.Text()}
	p.Moved = kept.Number()
	p.Locks = f.Text()
	f.Each(func(list *stores.Fields) {
		p.Written = append(p.Written, records.WrittenLock{ID: list.Text(), Text: list.Text()})
	})
	for kept.More() {
		p.Residue = append(p.Residue, records.Residue{Key: kept.Text(), Holder: kept.Text(), Token: kept.Number()})
	}
	f.Err = cmp.Or(f.Err, kept.Err)
	return p
}

// readWriteNumbers reads pairs: epoch and number.
func readWriteNumbers(f *stores.Fields) (numbers []records.WriteNumber) {
	f.Each(func(list *stores.Fields) {
		numbers = append(numbers, records.WriteNumber{Epoch: list.Number(), Number: list.Number()})
	})
	return numbers
}
