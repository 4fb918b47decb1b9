package etcd

import (
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/kept"
	"github.com/keyway-go/keyway/internal/records"
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

// fields takes a value apart, and keeps the first error.
type fields struct {
	list []string
	err  error
}

func split(value []byte) *fields {
	list, ok := stores.Split(string(value))
	f := &fields{list: list}
	if !ok {
		f.err = errValue
	}
	return f
}

func (f *fields) text() string {
	if len(f.list) == 0 {
		f.err = errValue
		return ""
	}
	text := f.list[0]
	f.list = f.list[1:]
	return text
}

func (f *fields) number() int64 {
	n, err := strconv.ParseInt(f.text(), 10, 64)
	if err != nil {
		f.err = errValue
	}
	return n
}

// more reports whether n fields follow, and takes the end of the list for none.
func (f *fields) more() bool { return f.err == nil && len(f.list) > 0 }

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
	f := split(kv.Value)
	s.Record = records.Record{Epoch: f.number(), Owner: f.text()}
	s.Moved = f.number()
	of, locks := f.text(), f.text()
	wrote := records.WriteNumber{Epoch: f.number(), Number: f.number()}
	for n := f.number(); n > 0 && f.err == nil; n-- {
		s.Residue = append(s.Residue, records.Residue{Key: f.text(), Holder: f.text(), Token: f.number()})
	}
	var written []records.WrittenLock
	for f.more() {
		written = append(written, records.WrittenLock{ID: f.text(), Text: f.text()})
	}
	if of == generation {
		s.Locks, s.Wrote, s.Written = locks, wrote, written
	}
	return s, f.err
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

func decodeSession(incarnation string, value []byte) (records.SessionState, error) {
	f := split(value)
	s := records.SessionState{Session: records.Session{Incarnation: incarnation, Name: f.text(), Addr: f.text(), Gossip: f.text()}}
	s.Joins = time.Duration(f.number()) * time.Millisecond
	return s, f.err
}
