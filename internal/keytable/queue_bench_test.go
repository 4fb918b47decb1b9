package keytable

import (
	"fmt"
	"testing"
)

// BenchmarkQueue tells what it takes, with 10,000 callers that wait for one key, to
// come and leave again, and to get the key and come again, for callers of 1 client, of
// 100 clients in turn, and of 10,000.
func BenchmarkQueue(b *testing.B) {
	const callers = 10_000
	for _, clients := range []int{1, 100, callers} {
		how := func(i int) Wait { return Wait{Client: uint64(i%clients + 1), PerKey: 2 * callers} }
		crowd := func(b *testing.B) (t *Table, token int64) {
			t = &Table{Queue: &Queue{Total: 4 * callers}}
			token, _ = t.TryLock("k")
			for i := range callers {
				if _, _, err := t.enter("k", how(i)); err != nil {
					b.Fatal(err)
				}
			}
			return t, token
		}
		b.Run(fmt.Sprintf("leave/%d", clients), func(b *testing.B) {
			t, _ := crowd(b)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_, w, _ := t.enter("k", how(i))
				t.giveUp(w)
				i++
			}
		})
		b.Run(fmt.Sprintf("turn/%d", clients), func(b *testing.B) {
			t, token := crowd(b)
			b.ReportAllocs()
			for b.Loop() {
				next := t.keys.slot.first
				t.Unlock("k", token)
				<-next.woken
				token, _ = t.endWait(next, nil)
				_, _, _ = t.enter("k", Wait{Client: next.client, PerKey: 2 * callers})
			}
		})
	}
}
