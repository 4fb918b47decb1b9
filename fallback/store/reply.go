package store

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

var errReply = errors.New("store: unexpected reply of a script")

// decoder takes the values of a script's reply one by one and keeps the
// first error.
type decoder struct {
	values []any
	err    error
}

// decode takes all values of a reply apart with read.
func decode[T any](values []any, read func(*decoder) T) (value T, err error) {
	d := decoder{values: values}
	all := read(&d)
	if err := d.endValues(); err != nil {
		return value, err
	}
	return all, nil
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errReply, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) next() any {
	if len(d.values) == 0 {
		d.fail("it is too short")
		return nil
	}
	v := d.values[0]
	d.values = d.values[1:]
	return v
}

func (d *decoder) text() string {
	v := d.next()
	s, ok := v.(string)
	if !ok {
		d.fail("%T is not a string", v)
	}
	return s
}

// number takes an integer, or a string that is one.
func (d *decoder) number() int64 {
	v := d.next()
	if n, ok := v.(int64); ok {
		return n
	}
	s, ok := v.(string)
	if !ok {
		d.fail("%T is not a number", v)
	}
	return d.parse(s)
}

func (d *decoder) parse(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		d.fail("%q is not a number", s)
	}
	return n
}

func (d *decoder) storeID() ring.StoreID {
	id, err := ring.ParseStoreID(d.text())
	if err != nil {
		d.fail("%v", err)
	}
	return id
}

// each takes the next value, which is a list, apart: f takes an item off it.
func (d *decoder) each(f func(list *decoder)) {
	v := d.next()
	values, ok := v.([]any)
	if !ok {
		d.fail("%T is not a list", v)
	}
	list := &decoder{values, d.err}
	for list.err == nil && len(list.values) > 0 {
		f(list)
	}
	d.err = list.err
}

// endValues returns the first error; values left over are one.
func (d *decoder) endValues() error {
	if len(d.values) > 0 {
		d.fail("%d values are left over", len(d.values))
	}
	return d.err
}

// partitions decodes groups of four: a partition, what the store keeps for it, the locks of a move,
// and the locks that the store keeps.
func (d *decoder) partitions() []records.PartitionState {
	states := []records.PartitionState{}
	d.each(func(list *decoder) { states = append(states, list.partition()) })
	return states
}

func (d *decoder) partition() records.PartitionState {
	p := records.PartitionState{Partition: int(d.number())}
	f := stores.Read(d.text())
	p.Record = records.Record{Epoch: f.Number(), Owner: f.Text()}
	p.Moved = f.Number()
	p.Locks = d.text()
	d.each(func(list *decoder) {
		p.Written = append(p.Written, records.WrittenLock{ID: list.text(), Text: list.text()})
	})
	for f.More() {
		p.Residue = append(p.Residue, records.Residue{Key: f.Text(), Holder: f.Text(), Token: f.Number()})
	}
	if f.Err != nil {
		d.fail("partition %d: %v", p.Partition, f.Err)
	}
	return p
}

// writeNumbers are pairs: epoch and number.
func (d *decoder) writeNumbers() (numbers []records.WriteNumber) {
	d.each(func(list *decoder) {
		numbers = append(numbers, records.WriteNumber{Epoch: list.number(), Number: list.number()})
	})
	return numbers
}
