package remote

import (
	"container/heap"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
)

func newID() (id ID) {
	for i := range id {
		id[i] = byte(rand.Int())
	}
	return id
}

func valid(key string) bool { return key != "" }

func TestLockText(t *testing.T) {
	const now = time.Hour
	list := []*Lock{
		{ID: newID(), Call: 1<<64 - 1, Key: "k", Token: 1, Lease: time.Second, expires: now + 300*time.Millisecond, state: held},
		{ID: newID(), Key: "größer", Label: "job 7", From: "[::1]:80", Token: 1<<62 + 5, Lease: 10 * time.Second, expires: now - 1, state: blocked, Shared: true},
		{ID: newID(), Key: "z", Token: 6, Lease: time.Second, expires: now + 1, state: lost},
		{ID: newID(), Key: "y", Token: 8, Lease: time.Second, expires: now + 1, Shared: true, state: held},
		{ID: newID(), Key: "x", Token: 7, Lease: time.Microsecond, expires: now + 1, state: keeping},
		{ID: newID(), Key: "long", Token: 8, Lease: time.Hour, expires: now + time.Hour, stored: 2 * time.Hour, state: written},
		{ID: newID(), Key: "ends", Token: 9, Lease: time.Hour, expires: now + time.Hour, stored: time.Hour, end: Expired, state: removing},
	}
	var done memory
	done.add(ended{id: newID()}, holder.Held)
	done.add(ended{id: newID()}, holder.Gone)
	done.add(ended{newID(), 1<<64 - 1}, holder.Gone)
	text := encode(list, done, now)
	if got, _, err := decode(encode(nil, memory{}, now), time.Minute, valid); len(got) != 0 || err != nil {
		t.Errorf("no locks became %v, %v", got, err)
	}
	got, gotDone, err := decode(text, 10*time.Second, valid)
	if err != nil || len(got) != len(list) || !reflect.DeepEqual(gotDone, done) {
		t.Fatalf("%d locks, %v", len(got), err)
	}
	size := 2 + len(done.order)*(endedSize)
	for i, l := range list {
		want, as := *l, held
		size += l.size()
		want.expires, want.end, want.state = l.Left(now), Granted, none
		switch l.state {
		case removing:
			want.expires = 0
		case blocked, lost:
			as = blocked
		}
		if l.stored > 0 {
			want.stored = l.Lease
		}
		want.expires = (want.expires + time.Millisecond - 1).Truncate(time.Millisecond) // never earlier
		want.Lease = (want.Lease + time.Millisecond - 1).Truncate(time.Millisecond)
		if !reflect.DeepEqual(*got[i].Lock, want) || got[i].as != as {
			t.Errorf("%+v, %v became %+v, %v", want, as, *got[i].Lock, got[i].as)
		}
	}
	if len(text) > size {
		t.Errorf("the text has %d bytes, at most %d were expected", len(text), size)
	}
	if _, _, err := decode(text, 9*time.Second, valid); err == nil {
		t.Error("a lease that is longer than the session TTL is taken")
	}
	if _, _, err := decode("B"+text[1:], 10*time.Second, valid); err == nil {
		t.Error("a text of another form is taken")
	}
	if _, _, err := decode(text, 10*time.Second, func(string) bool { return false }); err == nil {
		t.Error("a key that is none is taken")
	}
}

// FuzzLockText sees that no text makes the decoder panic, and that what it takes comes
// back the same.
func FuzzLockText(f *testing.F) {
	var done memory
	done.add(ended{newID(), 7}, holder.Held)
	f.Add(encode([]*Lock{{ID: newID(), Call: 7, Key: "k", Label: "l", From: "f", Token: 1, Lease: time.Second, expires: time.Second}}, done, 0))
	f.Add("AwA")
	f.Fuzz(func(t *testing.T, text string) {
		came, done, err := decode(text, time.Minute, valid)
		if err != nil || len(came) == 0 {
			return
		}
		var list []*Lock
		for _, l := range came {
			as := *l.Lock
			as.state = l.as
			list = append(list, &as)
		}
		again, doneAgain, err := decode(encode(list, done, 0), time.Minute, valid)
		if err != nil || !reflect.DeepEqual(again, came) || !reflect.DeepEqual(doneAgain, done) {
			t.Errorf("%+v became %+v, %v", came, again, err)
		}
	})
}

// Locks come out of their order by when they are due, whatever was removed before.
func TestLockOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var m Machine
		var all []*Lock
		for range random.IntN(100) {
			l := &Lock{due: time.Duration(1 + random.IntN(50))}
			all = append(all, l)
			heap.Push(&m.order, l)
			if i := random.IntN(len(all)); random.IntN(3) == 0 {
				heap.Remove(&m.order, int(all[i].place))
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			}
		}
		var last time.Duration
		for len(m.order) > 0 {
			first := m.order[0]
			if first.due != m.Next() || first.due < last {
				t.Fatalf("due at %v after %v, next %v", first.due, last, m.Next())
			}
			last = first.due
			heap.Remove(&m.order, int(first.place))
		}
		if m.Next() != 0 {
			t.Error("an empty machine is to be looked at")
		}
	}
}
