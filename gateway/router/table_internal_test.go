package router

import (
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/routes"
)

// A request whose goroutine has not run for a while since it looked at the clock is not
// refused because of those that were counted meanwhile.
func TestLateRequestsAreNotTooMany(t *testing.T) {
	rt := &Router{base: time.Now()}
	d := decision{route: &route{Route: &routes.Route{Name: "r"}, bucket: routes.NewBucket(policy.Rate{PerSecond: 1000, Burst: 10})}}
	now := rt.now()
	if err := d.admit(rt, now); err != nil {
		t.Fatal(err)
	}
	if err := d.admit(rt, now-time.Second); err != nil {
		t.Error(err)
	}
}
