package keytable

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestMaxWait: nobody waits for a key longer than the queue allows, and who gives
// up leaves its place to the next.
func TestMaxWait(t *testing.T) {
	const limit = 5 * time.Second
	type outcome struct {
		err  error
		took time.Duration
	}
	for name, test := range map[string]struct {
		free   time.Duration // when the key is
		caller time.Duration // how long the caller likes to wait; 0: for ever
		want   outcome
	}{
		"it is granted":           {free: 2 * time.Second, want: outcome{nil, 2 * time.Second}},
		"it waits for too long":   {free: time.Minute, want: outcome{ErrWaited, limit}},
		"the caller gives up":     {free: time.Minute, caller: time.Second, want: outcome{context.DeadlineExceeded, time.Second}},
		"the caller would wait":   {free: time.Minute, caller: time.Hour, want: outcome{ErrWaited, limit}},
		"granted, with a context": {free: 2 * time.Second, caller: time.Hour, want: outcome{nil, 2 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := Table{Queue: &Queue{MaxWait: limit}}
				for range 3 { // the waiter is used again
					began := time.Now()
					held, err := m.Lock(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					time.AfterFunc(test.free, func() { m.Unlock("k", held) })
					ctx := context.Background()
					if test.caller != 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, test.caller)
						defer cancel()
					}
					token, err := m.Lock(ctx, "k")
					if took := time.Since(began); !errors.Is(err, test.want.err) || took != test.want.took {
						t.Errorf("%v after %v, want %v after %v", err, took, test.want.err, test.want.took)
					}
					if m.Queued("k") != 0 || m.Queue.Waiting() != 0 {
						t.Error("somebody waits")
					}
					time.Sleep(time.Hour) // a limit that was not ended would fire meanwhile
					if err == nil {
						m.Unlock("k", token)
					}
					if m.Len() != 0 {
						t.Error("the key is held")
					}
				}
			})
		})
	}
}

// TestMaxWaitOfItems: an item that was taken along waits no more, however long the
// work on it takes.
func TestMaxWaitOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Queue: &Queue{MaxWait: time.Second}}
		token, _ := table.TryLock("k")
		var along, behind Item
		done := make(chan error, 2)
		go func() {
			_, err := table.LockWait(t.Context(), "k", Wait{Item: &along})
			done <- err
		}()
		synctest.Wait()
		go func() {
			_, err := table.LockWait(t.Context(), "k", Wait{Item: &behind})
			done <- err
		}()
		synctest.Wait()
		table.Take("k", token, func(*Item) (take, more bool) { return true, false })
		time.Sleep(time.Minute)
		if err := <-done; err != ErrWaited || behind.Taken() {
			t.Errorf("the item behind: %v", err)
		}
		select {
		case err := <-done:
			t.Fatalf("the item that was taken along: %v", err)
		default:
		}
		along.Finish()
		if err := <-done; err != nil || !along.Taken() {
			t.Errorf("the item that was taken along: %v", err)
		}
		table.Unlock("k", token)
	})
}

// TestMaxWaitPassesAGrantOn gives a key to a waiter that gives up in that moment.
func TestMaxWaitPassesAGrantOn(t *testing.T) {
	var table Table
	token, _ := table.TryLock("k")
	_, first, _ := table.enter("k", Wait{})
	_, second, _ := table.enter("k", Wait{})
	table.Unlock("k", token)
	if !table.giveUp(first) {
		t.Fatal("it did not wait")
	}
	if token, err := table.endWait(second, nil); token != 3 || err != nil {
		t.Errorf("the next: %d, %v", token, err)
	}
	table.Unlock("k", 3)
}

// TestWaitOfACaller: a caller's own bounds stand in place of the queue's, whether
// they are wider or narrower, and only for that caller.
func TestWaitOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Queue: &Queue{PerKey: 2, MaxWait: 5 * time.Second}}
		token, _ := table.TryLock("k")
		type outcome struct {
			name string
			err  error
			took time.Duration
		}
		ended := make(chan outcome, 10)
		ask := func(name string, lock func() error) {
			go func() {
				began := time.Now()
				err := lock()
				ended <- outcome{name, err, time.Since(began)}
			}()
			synctest.Wait()
		}
		locked := func(how Wait) func() error {
			return func() error {
				_, err := table.LockWait(t.Context(), "k", how)
				return err
			}
		}
		expect := func(want outcome) {
			t.Helper()
			if got := <-ended; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		ask("short", locked(Wait{MaxWait: time.Second}))
		ask("few", locked(Wait{PerKey: 1}))
		expect(outcome{"few", ErrQueueFull, 0})
		ask("usual", locked(Wait{}))
		ask("full", locked(Wait{}))
		expect(outcome{"full", ErrQueueFull, 0})
		ask("many", locked(Wait{PerKey: 4}))
		ask("item", locked(Wait{PerKey: 4, MaxWait: 10 * time.Second, Item: new(Item)}))
		expect(outcome{"short", ErrWaited, time.Second})
		for range 2 { // "usual" and "many", in any order
			if got := <-ended; got.err != ErrWaited || got.took != 5*time.Second {
				t.Errorf("%+v", got)
			}
		}
		expect(outcome{"item", ErrWaited, 10 * time.Second})
		table.Unlock("k", token)
	})
}
