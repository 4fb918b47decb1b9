package keytable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestCancelledWaiterHadJustBeenGrantedTheLock: the grant is passed on, and a
// done context loses.
func TestCancelledWaiterHadJustBeenGrantedTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Queue: new(Queue)}
		first, second, third := lock(t, &table, "k"), lock(t, &table, "k"), lock(t, &table, "k")
		first.holds(t, 1)
		table.mu.Lock() // so that what follows reaches the table together
		go table.Unlock("k", 1)
		second.cancel()
		table.mu.Unlock()
		second.fails(t, context.Canceled)
		synctest.Wait()
		if !third.returned || third.err != nil || third.token < 2 {
			t.Fatalf("the next waiter: returned %v, %d, %v", third.returned, third.token, third.err)
		}
		table.Unlock("k", third.token)
		isEmpty(t, &table)
	})
}

// TestGrantOfCancelledWaiterIsPassedOn is the same, with the order fixed: the
// grant comes first, the end of the context before the waiter has noticed.
func TestGrantOfCancelledWaiterIsPassedOn(t *testing.T) {
	table := Table{Queue: new(Queue)}
	token, _, _ := table.enter("k", Wait{})
	_, second, _ := table.enter("k", Wait{})
	_, third, _ := table.enter("k", Wait{})
	table.Unlock("k", token)
	if len(second.woken) != 1 || len(third.woken) != 0 {
		t.Fatal("the second was not woken, or the third was")
	}
	if token, err := table.endWait(second, context.Canceled); token != 0 || err != context.Canceled {
		t.Errorf("the cancelled waiter got %d, %v", token, err)
	}
	if len(third.woken) != 1 {
		t.Fatal("the grant was not passed on")
	}
	token, err := table.endWait(third, nil)
	if token != 3 || err != nil {
		t.Errorf("the next waiter got %d, %v", token, err)
	}
	table.Unlock("k", token)
	isEmpty(t, &table)
}

// TestPromotionRace: nothing is granted between the list of what runs and the
// closing, so what Close lists is what Unlock will report, no less and no more.
func TestPromotionRace(t *testing.T) {
	for range 100 {
		var table Table
		granted := make(chan Held, 1)
		go func() {
			token, err := table.Lock(t.Context(), "k")
			if err != nil {
				token = 0
			}
			granted <- Held{Key: "k", Token: token}
		}()
		listed := table.Close()
		switch got := <-granted; {
		case got.Token == 0 && len(listed) != 0:
			t.Fatalf("Close listed %v, nothing runs", listed)
		case got.Token != 0 && (len(listed) != 1 || listed[0] != got):
			t.Fatalf("Close listed %v, %v runs", listed, got)
		case got.Token != 0 && !table.Unlock("k", got.Token):
			t.Fatal("Unlock did not report a listed execution")
		}
	}
}

// TestPromotionRaceOfACrowd is the same with many who ask for keys all the time.
func TestPromotionRaceOfACrowd(t *testing.T) {
	for range 100 {
		var (
			table Table
			wg    sync.WaitGroup
			held  [4][]Held
			begun = make(chan struct{}, len(held))
		)
		for i := range held {
			wg.Go(func() {
				for n := 0; ; n++ { // until the table is closed
					key := fmt.Sprint(i, "/", n)
					token, err := table.TryLock(key)
					if n == 0 {
						begun <- struct{}{}
					}
					if err != nil {
						return
					}
					held[i] = append(held[i], Held{Key: key, Token: token})
				}
			})
		}
		<-begun
		listed := table.Close()
		wg.Wait()
		want := slices.Concat(held[:]...)
		slices.SortFunc(want, func(a, b Held) int { return cmp.Compare(a.Token, b.Token) })
		if !slices.Equal(listed, want) {
			t.Fatalf("Close listed %d executions, %d run", len(listed), len(want))
		}
	}
}

// TestCloseTakesBackGrant: a waiter that has been granted the key and has not
// noticed does not run, so Close must not list it: nobody would ever unlock it
// if its context were done.
func TestCloseTakesBackGrant(t *testing.T) {
	for name, done := range map[string]error{"context done": context.Canceled, "context alive": nil} {
		t.Run(name, func(t *testing.T) {
			table := Table{Queue: new(Queue)}
			token, _, _ := table.enter("k", Wait{})
			_, second, _ := table.enter("k", Wait{})
			table.Unlock("k", token)
			if held := table.Close(); len(held) != 0 {
				t.Errorf("Close listed %v", held)
			}
			isEmpty(t, &table)
			table.Open(0, 0, nil)
			token, err := table.TryLock("k")
			if err != nil {
				t.Fatalf("the key is not free: %v", err)
			}
			want := done
			if want == nil {
				want = ErrClosed
			}
			if token, err := table.endWait(second, done); token != 0 || err != want {
				t.Errorf("the waiter got %d, %v; want %v", token, err, want)
			}
			if table.Unlock("k", token) {
				t.Error("the new execution is taken for a listed one")
			}
			isEmpty(t, &table)
		})
	}
}

// TestStaleUnlock: an unlock that comes late does not free the key of a newer
// holder.
func TestStaleUnlock(t *testing.T) {
	var table Table
	old, _ := table.TryLock("k")
	table.Unlock("k", old)
	token, _ := table.TryLock("k")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the stale unlock passed")
			}
		}()
		table.Unlock("k", old)
	}()
	if _, err := table.TryLock("k"); err != ErrLocked {
		t.Errorf("the key is free: %v", err)
	}
	table.Unlock("k", token)
}

// TestUnlockBeforeLockReturned: a token guessed too early frees nothing.
func TestUnlockBeforeLockReturned(t *testing.T) {
	var table Table
	token, _, _ := table.enter("k", Wait{})
	_, second, _ := table.enter("k", Wait{})
	table.Unlock("k", token)
	if _, ok := table.unlockLocked("k", token+1); ok {
		t.Error("a grant that nobody has taken was unlocked")
	}
	if token, err := table.endWait(second, nil); token != 2 || err != nil {
		t.Errorf("the waiter got %d, %v", token, err)
	}
}
