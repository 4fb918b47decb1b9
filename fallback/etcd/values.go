package etcd

import (
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/kept"
	"github.com/keyway-go/keyway/internal/records"
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

// partition is what the store keeps of one.
type partition struct {
	kept.Partition
	generation string // of Locks, Written and Wrote, which end with it
}

// decodePartition returns a partition as it is in a generation. Its value is a list of fields; residue and
// written locks come last, the former counted.
func decodePartition(p int, generation string, kv *mvccpb.KeyValue) (*partition, error) {
	s := &partition{kept.Partition{PartitionState: records.PartitionState{Partition: p}}, generation}
	if kv == nil {
		return s, nil
	}
	f := stores.Read(string(kv.Value))
	s.Record = records.Record{Epoch: f.Number(), Owner: f.Text()}
	s.Moved = f.Number()
	of, locks := f.Text(), f.Text()
	wrote := records.WriteNumber{Epoch: f.Number(), Number: f.Number()}
	for n := f.Number(); n > 0 && f.Err == nil; n-- {
		s.Residue = append(s.Residue, records.Residue{Key: f.Text(), Holder: f.Text(), Token: f.Number()})
	}
	var written []records.WrittenLock
	for f.More() {
		written = append(written, records.WrittenLock{ID: f.Text(), Text: f.Text()})
	}
	if of == generation {
		s.Locks, s.Wrote, s.Written = locks, wrote, written
	}
	return s, f.Err
}

func (s *partition) encode() string {
	list := []string{number(s.Record.Epoch), s.Record.Owner, number(s.Moved), s.generation, s.Locks, number(s.Wrote.Epoch), number(s.Wrote.Number), strconv.Itoa(len(s.Residue))}
	for _, r := range s.Residue {
		list = append(list, r.Key, r.Holder, number(r.Token))
	}
	for _, l := range s.Written {
		list = append(list, l.ID, l.Text)
	}
	return stores.Join(list...)
}
