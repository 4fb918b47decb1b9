package worker_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// extend asks for another lease, and returns the grant or fails the test.
func (c *caller) extend(key string, e holds.Request) holds.Grant {
	c.t.Helper()
	status, body, err := c.call(c.t.Context(), holds.Extend, key, e.Append(nil))
	if err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s %v", status, body, err)
	}
	grant, err := holds.ParseGrant(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return grant
}

// A lock has the lease to which it was extended last, and no extension takes away what is
// left.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c, id := newCaller(t, w), holds.NewID()
		first := c.acquireAs("k", holds.Request{ID: id, Lease: 2 * time.Second})
		time.Sleep(time.Second)
		if g := c.extend("k", holds.Request{ID: id, Lease: 8 * time.Second}); g.Token != first.Token || g.Lease != 8*time.Second || g.Cancel <= 0 || g.Surrender <= g.Cancel {
			t.Errorf("extended to %+v, granted %+v", g, first)
		}
		time.Sleep(7 * time.Second)
		if c.renew(id).States[0] != holder.Held {
			t.Error("not held before the end of the lease to which it was extended")
		}
		time.Sleep(7 * time.Second) // of the 8 that the renewal has given
		c.extend("k", holds.Request{ID: id, Lease: 8 * time.Second})
		c.extend("k", holds.Request{ID: id, Lease: time.Second})
		time.Sleep(7 * time.Second)
		if c.renew(id).States[0] != holder.Held {
			t.Error("an extension has made the lease shorter")
		}
		time.Sleep(1500 * time.Millisecond)
		if !free(t, w, "k") {
			t.Error("held beyond the lease to which it was extended last")
		}
		for _, tt := range []struct {
			name, key string
			body      []byte
			status    int
		}{
			{"ended", "k", holds.Request{ID: id}.Append(nil), http.StatusGone},
			{"never held", "k", holds.Request{ID: holds.NewID()}.Append(nil), http.StatusGone},
			{"malformed", "k", []byte{1}, http.StatusBadRequest},
			{"no key", "", holds.Request{ID: id}.Append(nil), http.StatusBadRequest},
		} {
			if status, body, err := c.call(t.Context(), holds.Extend, tt.key, tt.body); status != tt.status || err != nil {
				t.Errorf("%s: %d %s %v, want %d", tt.name, status, body, err, tt.status)
			}
		}
		other := holds.NewID()
		c.acquire("k", other)
		if status, body, err := c.call(t.Context(), holds.Extend, sameAs(c.ring, "k"), holds.Request{ID: other}.Append(nil)); status != http.StatusUnprocessableEntity || err != nil {
			t.Errorf("another key of the lock: %d %s %v", status, body, err)
		}
	})
}

// An extension finds its lock where its partition has gone, and is refused by who has given
// that away.
func TestExtendFollowsThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		id := holds.NewID()
		grant := toA.acquireAs(key, holds.Request{ID: id, Lease: 5 * time.Second})
		leave(t, a, b)
		_, _, err := toA.call(t.Context(), holds.Extend, key, holds.Request{ID: id}.Append(nil))
		if r, _ := errors.AsType[*link.RefusedError](err); r == nil || r.Reason != link.NotOwner || r.Owner != b.Incarnation() {
			t.Errorf("the former owner says %v, want the new one's name", err)
		}
		if g := toB.extend(key, holds.Request{ID: id}); g.Token != grant.Token || g.Lease != 10*time.Second {
			t.Errorf("extended to %+v, granted %+v", g, grant)
		}
		time.Sleep(9 * time.Second)
		if err := b.TryDo(t.Context(), key, ok); !errors.Is(err, gateway.ErrLocked) {
			t.Errorf("within the lease to which it was extended: %v", err)
		}
	})
}
