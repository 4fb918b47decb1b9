//go:build linux

// Package resource is what the requests of a load test work on, and the judge
// of the locks that are to protect it: a record for each key, in a file that
// all processes of a stack map into their memory. What an execution does to a
// record, reading, working and writing back with nothing to protect it, shows
// whether another one was there at the same time, in whichever process.
//
// It fences, too: an execution that comes with a token writes nothing once one
// with a higher token has been there.
package resource

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Record is the state of a key.
type Record struct {
	inside  atomic.Uint64 // the execution that began last and has not ended: process<<32 | number
	highest atomic.Int64  // token
	value   atomic.Int64

	executions  atomic.Int64
	overlaps    atomic.Int64
	overtaken   atomic.Int64
	lost        atomic.Int64
	regressions atomic.Int64
	refused     atomic.Int64
	_           [6]int64
}

// Verdict sums up what records show. Executions is the count of all that wrote; all the others should be zero.
type Verdict struct {
	Executions int64 `json:"executions"`

	// Overlaps are executions that found another one of their key inside, and
	// that cannot be told from it by tokens.
	Overlaps int64 `json:"overlaps"`
	// Lost are updates that overwrote another execution's, which had written
	// since they read.
	Lost int64 `json:"lost_updates"`
	// Overtaken are executions that found another one inside with a lower
	// token, which the resource fences from then on.
	Overtaken int64 `json:"overtaken"`
	// Regressions are executions that came with a token not higher than one
	// that had been there. They were refused.
	Regressions int64 `json:"token_regressions"`
	// Refused are writes of overtaken executions.
	Refused int64 `json:"fenced_writes"`
}

// Add adds the counts of another verdict.
func (v *Verdict) Add(o Verdict) { v.combine(o, 1) }

// Sub takes the counts of an earlier verdict off.
func (v *Verdict) Sub(o Verdict) { v.combine(o, -1) }

func (v *Verdict) combine(o Verdict, sign int64) {
	v.Executions += sign * o.Executions
	v.Overlaps += sign * o.Overlaps
	v.Lost += sign * o.Lost
	v.Overtaken += sign * o.Overtaken
	v.Regressions += sign * o.Regressions
	v.Refused += sign * o.Refused
}

// Table is the records of a stack.
type Table struct {
	process uint64
	last    atomic.Uint32 // number of an execution
	memory  []byte
	records []Record
}

// Open maps the file at path, which it makes or enlarges if need be. The
// table must be closed.
func Open(path string, keys int) (*Table, error) { return open(path, keys, os.Getpid()) }

func open(path string, keys, pid int) (*Table, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("resource: %w", err)
	}
	defer f.Close()
	size := int64(keys) * int64(unsafe.Sizeof(Record{}))
	if info, err := f.Stat(); err != nil || info.Size() < size {
		if err := errors.Join(err, f.Truncate(size)); err != nil {
			return nil, fmt.Errorf("resource: %w", err)
		}
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("resource: %w", err)
	}
	records := unsafe.Slice((*Record)(unsafe.Pointer(unsafe.SliceData(memory))), keys)
	return &Table{process: uint64(pid), memory: memory, records: records}, nil
}

// Close unmaps the file.
func (t *Table) Close() error { return unix.Munmap(t.memory) }

// Name returns the name of the key with a number.
func Name(i int) string { return fmt.Sprintf("k%07d", i) }

// Find returns the number of the key with a name.
func (t *Table) Find(name string) (i int, ok bool) {
	if len(name) != 8 || name[0] != 'k' {
		return 0, false
	}
	i, err := strconv.Atoi(name[1:])
	return i, err == nil && i >= 0 && i < len(t.records)
}

// Verdict sums up all records.
func (t *Table) Verdict() (v Verdict) {
	for i := range t.records {
		r := &t.records[i]
		v.Add(Verdict{
			Executions: r.executions.Load(), Overlaps: r.overlaps.Load(), Lost: r.lost.Load(),
			Overtaken: r.overtaken.Load(), Regressions: r.regressions.Load(), Refused: r.refused.Load(),
		})
	}
	return v
}

// ErrFenced means that the resource has seen a higher token.
var ErrFenced = errors.New("resource: an execution with a higher token has been here")

// Count counts an execution that another resource has excluded and judged.
func (t *Table) Count(key int) {
	t.records[key].value.Add(1)
	t.records[key].executions.Add(1)
}

// Execution is one that works on a record.
type Execution struct {
	record *Record
	id     uint64
	token  int64
	read   int64
}

// Begin lets an execution read the record of a key. Token is its fencing
// token, 0 if it has none. The caller must end what it begins.
func (t *Table) Begin(key int, token int64) (Execution, error) {
	r := &t.records[key]
	highest := r.raise(token)
	if token > 0 && token <= highest {
		r.regressions.Add(1)
		return Execution{}, ErrFenced
	}
	x := Execution{record: r, id: t.process<<32 | uint64(t.last.Add(1)), token: token}
	if other := r.inside.Swap(x.id); other != 0 && runs(int(other>>32)) {
		if token > highest && highest > 0 {
			r.overtaken.Add(1)
		} else {
			r.overlaps.Add(1)
		}
	}
	x.read = r.value.Load()
	return x, nil
}

// raise returns the highest token before.
func (r *Record) raise(token int64) int64 {
	for {
		highest := r.highest.Load()
		if token <= highest || r.highest.CompareAndSwap(highest, token) {
			return highest
		}
	}
}

// Value is what the execution has read.
func (x Execution) Value() int64 { return x.read }

// Write writes the value that the execution has read and one more for each of those that it
// stands for, and ends the execution.
func (x Execution) Write(n int64) error {
	r := x.record
	defer x.End()
	if x.token > 0 && r.highest.Load() > x.token {
		r.refused.Add(1)
		return ErrFenced
	}
	if !r.value.CompareAndSwap(x.read, x.read+n) {
		r.lost.Add(1)
		r.value.Store(x.read + n) // as anybody would write who does not know
	}
	r.executions.Add(n)
	return nil
}

// End ends an execution that was given up.
func (x Execution) End() { x.record.inside.CompareAndSwap(x.id, 0) }

// runs reports whether a process lives. One that was killed inside of a
// critical section overlaps with nobody any more.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
