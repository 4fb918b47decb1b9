package worker

import (
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/holds"
)

func TestLockText(t *testing.T) {
	const now = time.Hour
	list := []*lock{
		{id: holds.NewID(), call: 1<<64 - 1, key: "k", token: 1, lease: time.Second, expires: now + 300*time.Millisecond},
		{id: holds.NewID(), key: "größer", label: "job 7", from: "[::1]:80", token: 1<<62 + 5, lease: 10 * time.Second, expires: now - 1, state: lockBlocks, shared: true},
		{id: holds.NewID(), key: "y", token: 8, lease: time.Second, expires: now + 1, shared: true},
		{id: holds.NewID(), key: "x", token: 7, lease: time.Microsecond, expires: now + 1},
		{id: holds.NewID(), key: "long", token: 8, lease: time.Hour, expires: now + time.Hour, stored: 2 * time.Hour},
		{id: holds.NewID(), key: "ends", token: 9, lease: time.Hour, expires: now + time.Hour, stored: time.Hour, end: lockExpired},
	}
	done := []released{{holds.NewID(), 7}, {holds.NewID(), 1<<64 - 1}}
	text := lockText(list, done, now)
	if got, _, err := parseLocks(lockText(nil, nil, now), time.Minute); len(got) != 0 || err != nil {
		t.Errorf("no locks became %v, %v", got, err)
	}
	got, gotDone, err := parseLocks(text, 10*time.Second)
	if err != nil || len(got) != len(list) || !slices.Equal(gotDone, done) {
		t.Fatalf("%d locks, %v", len(got), err)
	}
	size := 2 + len(done)*(releasedSize+1)
	for i, l := range list {
		want := *l
		size += l.size()
		want.expires = max(l.expires-now, 0)
		if l.end != lockGranted {
			want.end, want.expires = lockGranted, 0
		}
		if l.stored > 0 {
			want.stored = l.lease
		}
		want.expires = (want.expires + time.Millisecond - 1).Truncate(time.Millisecond) // never earlier
		want.lease = (want.lease + time.Millisecond - 1).Truncate(time.Millisecond)
		if !reflect.DeepEqual(*got[i], want) {
			t.Errorf("%+v became %+v", want, *got[i])
		}
	}
	if len(text) > size {
		t.Errorf("the text has %d bytes, at most %d were expected", len(text), size)
	}
	if _, _, err := parseLocks(text, 9*time.Second); err == nil {
		t.Error("a lease that is longer than the session TTL is taken")
	}
	if _, _, err := parseLocks("B"+text[1:], 10*time.Second); err == nil {
		t.Error("a text of another form is taken")
	}
}

// FuzzLockText sees that no text makes the parser panic, and that what it takes comes
// back the same.
func FuzzLockText(f *testing.F) {
	f.Add(lockText([]*lock{{id: holds.NewID(), call: 7, key: "k", label: "l", from: "f", token: 1, lease: time.Second, expires: time.Second}}, []released{{holds.NewID(), 7}}, 0))
	f.Add("AgA")
	f.Fuzz(func(t *testing.T, text string) {
		list, done, err := parseLocks(text, time.Minute)
		if err != nil || len(list) == 0 {
			return
		}
		again, doneAgain, err := parseLocks(lockText(list, done, 0), time.Minute)
		if err != nil || !reflect.DeepEqual(again, list) || !slices.Equal(doneAgain, done) {
			t.Errorf("%+v became %+v, %v", list, again, err)
		}
	})
}

// Locks come out of a table's order by when they are due, whatever was removed before.
func TestLockOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var table lockTable
		var all []*lock
		for range random.IntN(100) {
			l := &lock{due: time.Duration(1 + random.IntN(50))}
			all = append(all, l)
			table.push(l)
			if i := random.IntN(len(all)); random.IntN(3) == 0 {
				table.remove(all[i])
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			}
		}
		var last time.Duration
		for len(table.order) > 0 {
			first := table.order[0]
			if int64(first.due) != table.next.Load() || first.due < last {
				t.Fatalf("due at %v after %v, noted %v", first.due, last, table.next.Load())
			}
			last = first.due
			table.remove(first)
		}
		if table.next.Load() != 0 {
			t.Error("an empty table is to be looked at")
		}
	}
}

// A call that gives up ends the lock that it has made, unless another call with the same id has
// found that, and may have told its holder.
func TestTrapLockThatAnotherCallHasFound(t *testing.T) {
	for _, found := range []bool{false, true} {
		w := &Worker{base: time.Now(), log: slog.New(slog.DiscardHandler)}
		p := &partition{worker: w}
		p.locks.open = true
		own := &lock{id: holds.NewID(), key: "k", lease: time.Hour, expires: time.Hour}
		own.token, _ = p.table.TryLock("k")
		w.locks.worker = w
		p.locks.mu.Lock()
		p.addLocked(own, lockGranted)
		p.locks.mu.Unlock()
		defer w.locks.sweeps.timer.Stop()
		if found {
			if held, _, err := w.locks.enter(func() {}, p, &lock{id: own.id, key: "k"}); held != own || err != nil {
				t.Fatalf("another call gets %v, %v", held, err)
			}
		}
		p.abandonLock(own.id, own.isAlone)
		if held := p.table.Inspect("k").Token != 0; held != found {
			t.Errorf("found by another call: %v, and then held: %v", found, held)
		}
	}
}
