package keytable

import (
	"runtime"
	"strconv"
	"testing"
)

const many = 1_000_000

// holdMany holds many keys in tables as a worker has them, and has a caller wait
// for each tenth. It returns a function that ends all of that.
func holdMany(t testing.TB, tables []Table) (end func()) {
	tokens := make([]int64, many)
	waiters := make([]*waiter, 0, many/10)
	for i := range tokens {
		var err error
		key, table := strconv.Itoa(i), &tables[i%len(tables)]
		if tokens[i], err = table.TryLock(key); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			_, w, err := table.enter(key, Wait{})
			if err != nil {
				t.Fatal(err)
			}
			waiters = append(waiters, w)
		}
	}
	return func() {
		for i, w := range waiters {
			if i%2 == 0 {
				tables[i*10%len(tables)].giveUp(w)
			}
		}
		for i, token := range tokens {
			key, table := strconv.Itoa(i), &tables[i%len(tables)]
			table.Unlock(key, token)
			if i%20 == 10 {
				next, err := table.endWait(waiters[i/10], nil)
				if err != nil {
					t.Fatal(err)
				}
				table.Unlock(key, next)
			}
		}
	}
}

// heap returns what the heap has when all that can be freed is.
func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// TestManyKeysAreForgotten: what held a million keys at once takes no more memory,
// once nobody holds one, than what each table keeps for reuse.
func TestManyKeysAreForgotten(t *testing.T) {
	queue := &Queue{PerKey: 10, Total: many}
	tables := make([]Table, 4096)
	for i := range tables {
		tables[i].Queue = queue
	}
	before := heap()
	holdMany(t, tables)()
	after := heap()
	// Of the pages that had a million keys some are in use for a few spares.
	kept, pages := int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(after.HeapInuse)-int64(before.HeapInuse)
	t.Logf("%d bytes are kept per table, in pages of %d", kept/int64(len(tables)), pages/int64(len(tables)))
	if kept > int64(len(tables))<<10 || pages > int64(len(tables))<<12 {
		t.Errorf("%d KiB are kept in pages of %d KiB, want a KiB for each of %d tables", kept>>10, pages>>10, len(tables))
	}
	for i := range tables {
		if n := tables[i].Len(); n != 0 {
			t.Fatalf("%d keys are held", n)
		}
	}
}

// BenchmarkHeld tells what one of a million keys that are held at once takes, with
// its name, and a tenth of a caller that waits for it.
func BenchmarkHeld(b *testing.B) {
	queue := &Queue{PerKey: 10, Total: many}
	for b.Loop() {
		tables := make([]Table, 4096)
		for i := range tables {
			tables[i].Queue = queue
		}
		before := heap()
		end := holdMany(b, tables)
		b.ReportMetric(float64(heap().HeapInuse-before.HeapInuse)/many, "B/key")
		end()
		runtime.KeepAlive(tables)
	}
}
