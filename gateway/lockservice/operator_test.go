package lockservice_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/metrictest"
)

// An operator releases locks whose holders are lost, also those that the store keeps: their renewals find them gone,
// the log says who has done it, and the next holder has a higher token.
func TestTrapForcedRelease(t *testing.T) {
	for _, ttl := range []string{"5s", "24h"} {
		for _, mode := range []string{"write", "read"} {
			t.Run(ttl+" "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					s := newLockSite(t)
					w := s.StartServing(func(cfg *worker.Config) {
						cfg.MaxLease, cfg.Logger = 24*time.Hour, slog.New(slog.NewTextHandler(&log, nil))
					})
					o := s.router.Operator()
					l := s.must(200, "POST", "/v1/locks/order-42?label=cron-7&mode="+mode+"&ttl="+ttl)
					rows, err := o.Unlock(t.Context(), "order-42", "ada")
					if err != nil || len(rows) != 1 || rows[0].Label != "cron-7" || rows[0].At != w.Member.Self().Name || rows[0].Token != l.Token || rows[0].Written != (ttl == "24h") {
						t.Fatalf("%+v, %v", rows, err)
					}
					s.must(410, "PUT", "/v1/locks/order-42?lease="+l.Lease)
					if again := s.must(200, "POST", "/v1/locks/order-42"); again.Token <= l.Token {
						t.Errorf("token %d after %d", again.Token, l.Token)
					}
					s.must(410, "PUT", "/v1/locks/order-42?lease="+l.Lease)
					text := log.String()
					for _, want := range []string{"an operator", "ada", "key=order-42", "label=cron-7", fmt.Sprint("token=", l.Token)} {
						if !strings.Contains(text, want) {
							t.Errorf("the log does not say %q: %s", want, text)
						}
					}
					if n := metrictest.Gather(t, w.Worker)[`keyway_worker_lock_events_total{event="forced"}`]; n != 1 {
						t.Errorf("%v locks counted as released by force", n)
					}
					if _, err := o.Unlock(t.Context(), "order-43", "ada"); !errors.Is(err, status.ErrNotLocked) {
						t.Errorf("a key that is not locked: %v", err)
					}
				})
			})
		}
	}
}

// All locks of a cluster are listed, each once, a page at a time.
func TestLockPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLockSite(t)
		s.StartServing()
		s.StartServing()
		const locked = 2*status.MaxLockRows + 50
		for i := range locked {
			s.must(200, "POST", fmt.Sprintf("/v1/locks/k%d?mode=read&label=first", i))
		}
		s.must(200, "POST", "/v1/locks/k0?mode=read&ttl=9s&label=second")
		seen, at, after := map[string]int{}, map[string]int{}, ""
		for page := 0; page == 0 || after != ""; page++ {
			p := s.router.Operator().Locks(t.Context(), after)
			if len(p.Silent) > 0 || len(p.Locks) > status.MaxLockRows || page > 4 {
				t.Fatalf("page %d has %d rows; silent: %v", page, len(p.Locks), p.Silent)
			}
			for _, row := range p.Locks {
				seen[row.Key]++
				at[row.At]++
				if second := row.Key == "k0"; row.Readers != 1+map[bool]int{true: 1}[second] || row.Token == 0 || row.LeaseSeconds <= 0 {
					t.Errorf("%+v", row)
				}
			}
			after = p.Next
		}
		if len(seen) != locked || seen["k0"] != 1 || len(at) != 2 {
			t.Errorf("%d keys at %v, want %d at two workers", len(seen), at, locked)
		}
	})
}
