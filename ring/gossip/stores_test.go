package gossip_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Members of two stores stay within each other's sight and out of each other's
// view, both sides say so, and they come together once there is one store.
func TestTwoStoresStayApart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		var logs [2]logs
		var both []*gossip.Cluster
		for i := range logs {
			cfg := b.config(i + 1)
			cfg.Settings.Store = ring.StoreID(i + 7)
			cfg.Seeds = []string{address(1)}
			cfg.Logger = logs[i].logger()
			both = append(both, b.start(cfg, address(i+1)))
		}
		apart := func() bool {
			for i, c := range both {
				v := c.View()
				if len(v.Members) != 1 || len(v.Refused) != 1 || v.Refused[0].StoreID != ring.StoreID(8-i) {
					return false
				}
			}
			return true
		}
		b.eventually(5*time.Second, "each refuses the other", apart)
		time.Sleep(10 * time.Second)
		if !apart() {
			t.Error("they did not stay apart")
		}
		for i := range logs {
			log := logs[i].String()
			for _, want := range []string{"level=ERROR", "store differs", "0000000000000007", "0000000000000008", address(1), address(2), "--redis"} {
				if !strings.Contains(log, want) {
					t.Errorf("the log of member %d lacks %q:\n%s", i+1, want, log)
				}
			}
		}
		if err := both[1].Announce(func(self *ring.Member) { self.StoreID = 7 }); err != nil {
			t.Fatal(err)
		}
		b.eventually(5*time.Second, "they come together", func() bool {
			return agree(both, 2) && len(both[0].View().Refused)+len(both[1].View().Refused) == 0
		})
	})
}

// A member that does not know its store follows the oldest of the active
// workers', and says that there are several.
func TestSeveralStoresAreNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		var log logs
		cfg := b.config(0)
		cfg.Logger = log.logger()
		router := b.start(cfg, address(0))
		for i := range 2 {
			cfg := b.config(i + 1)
			cfg.Settings.Store = ring.StoreID(i + 7)
			b.start(cfg, address(i+1))
		}
		b.eventually(5*time.Second, "the younger store is refused", func() bool {
			v := router.View()
			return len(v.Members) == 2 && len(v.Refused) == 1 && v.Refused[0].StoreID == 8
		})
		time.Sleep(5 * time.Minute)
		if n := strings.Count(log.String(), "active workers use several stores"); n != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("said %d times:\n%s", n, &log)
		}
		for _, want := range []string{"0000000000000007", "0000000000000008", "--redis"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
	})
}
