package worker_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

func (c *caller) inspect(key string) holds.Occupancy {
	c.t.Helper()
	status, body, err := c.call(c.t.Context(), holds.Inspect, key, nil)
	if err != nil || status != http.StatusOK {
		c.t.Fatalf("%d %s %v", status, body, err)
	}
	return parseOccupancy(c.t, body)
}

func parseOccupancy(t *testing.T, body []byte) holds.Occupancy {
	t.Helper()
	o, err := holds.ParseOccupancy(body)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Who has a key is said to those who ask, and to those who do not get it.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		if o := c.inspect("k"); o != (holds.Occupancy{}) {
			t.Errorf("a free key: %+v", o)
		}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			if o := c.inspect("k"); o != (holds.Occupancy{Held: true, Token: x.Token()}) {
				t.Errorf("an execution: %+v", o)
			}
			return nil
		})
		grant := c.acquireAs("k", holds.Request{ID: holds.NewID(), Lease: 4 * time.Second, Label: "cron-7"})
		want := holds.Occupancy{Held: true, Lock: true, Token: grant.Token, Label: "cron-7", Left: 3 * time.Second}
		time.Sleep(time.Second)
		if o := c.inspect("k"); o != want {
			t.Errorf("a lock: %+v, want %+v", o, want)
		}
		status, body, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID(), Try: true}.Append(nil))
		if o := parseOccupancy(t, body); status != http.StatusConflict || err != nil || o != want {
			t.Errorf("who tries reads %d %+v %v", status, o, err)
		}
		go func() { _ = w.Do(t.Context(), "k", ok) }()
		synctest.Wait()
		status, body, err = c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID(), Wait: time.Second}.Append(nil))
		want.Left, want.Waiting = 2*time.Second, 1
		if o := parseOccupancy(t, body); status != http.StatusConflict || err != nil || o != want {
			t.Errorf("who has waited reads %d %+v %v", status, o, err)
		}
	})
}

// Only the owner of a key says who has it: another worker would take it for free.
func TestTrapInspectAtTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, key, toA, toB := pairOf(t)
		grant := toA.acquire(key, holds.NewID())
		_, _, err := toB.call(t.Context(), holds.Inspect, key, nil)
		if refusal, refused := errors.AsType[*link.RefusedError](err); !refused || refusal.Reason != link.NotOwner {
			t.Errorf("who does not serve the key answers %v", err)
		}
		if o := toA.inspect(key); o.Token != grant.Token {
			t.Errorf("the owner says %+v, want token %d", o, grant.Token)
		}
	})
}
