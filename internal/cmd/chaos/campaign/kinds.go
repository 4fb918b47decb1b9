package main

import (
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

var (
	severed = []int{http.StatusBadGateway, http.StatusServiceUnavailable}
	lost    = []int{trial.NoAnswer}
	unknown = []int{trial.NoAnswer, http.StatusBadGateway, http.StatusServiceUnavailable}
	unsafe  = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusConflict}
)

// kinds are all kinds of faults; docs/guarantees.md says why. They can be played once the cast is built.
func (c *cast) kinds() []*trial.Kind {
	return []*trial.Kind{
		{Name: "kill-worker", Target: "w", Lasts: [2]int{0, 14}, Fails: trial.Broken, Ran: true, Play: c.Kill},
		{Name: "pause-worker", Target: "w", Lasts: [2]int{3, 16}, Fails: trial.Resumed, Ran: true, Settle: 0.5, Late: true, Play: c.Pause},
		{Name: "restart-worker", Target: "w", Lasts: [2]int{0, 10}, Alone: true, Play: c.Restart},
		{Name: "kill-router", Target: "p", Lasts: [2]int{0, 10}, Fails: lost, Play: c.Kill},
		{Name: "pause-router", Target: "p", Lasts: [2]int{2, 12}, Fails: []int{trial.NoAnswer, http.StatusBadGateway}, Settle: 0.5, Play: c.Pause},
		{Name: "restart-router", Target: "p", Lasts: [2]int{0, 5}, Alone: true, Play: c.Restart},
		{Name: "kill-store-leader", Spared: true, Lasts: [2]int{8, 14}, Fails: severed, Settle: 1, Play: c.onLeader(c.killLeader)},
		// Not spared: an etcd leader ends live sessions when it resumes, before 3.4.31 and 3.5.13.
		{Name: "pause-store-leader", Lasts: [2]int{8, 14}, Fails: severed, Settle: 1, Play: c.onLeader(c.pauseLeader)},
		{Name: "lose-writes", Redis: true, Lasts: [2]int{8, 14}, Fails: severed, Settle: 1, Play: c.onLeader(c.loseWrites)},
		{Name: "switch-redis-master", Redis: true, Alone: true, Play: c.onLeader(c.switchMaster)},
		{Name: "kill-store-follower", Lasts: [2]int{3, 12}, Beside: true, Play: c.onLeader(c.killFollower)},
		{Name: "kill-sentinel", Redis: true, Target: "r", Lasts: [2]int{3, 12}, Beside: true, Play: c.killSentinel},
		{Name: "cut-worker-router", Target: "w", Lasts: [2]int{2, 14}, Fails: unknown, Settle: 1, Cuts: true, Play: c.cutFrom("p", true)},
		{Name: "cut-worker-store", Target: "w", Lasts: [2]int{2, 16}, Fails: severed, Settle: 1, Cuts: true, Play: c.cutFrom("r", false)},
		{Name: "cut-worker-worker", Target: "w", Lasts: [2]int{2, 14}, Beside: true, Cuts: true, Play: c.cutFrom("w", true)},
		{Name: "cut-router-store", Target: "p", Lasts: [2]int{2, 14}, Beside: true, Cuts: true, Play: c.cutFrom("r", false)},
		{Name: "cut-client-router", Target: "c", Lasts: [2]int{2, 10}, Fails: lost, Settle: 1, Cuts: true, Play: c.cutFrom("p", true)},
		{Name: "cut-store-leader", Spared: true, Lasts: [2]int{8, 14}, Fails: severed, Settle: 1, Cuts: true, Play: c.onLeader(c.cutLeader)},
		{Name: "isolate-worker", Target: "w", Lasts: [2]int{2, 16}, Fails: unknown, Settle: 1, Cuts: true, Play: c.cutFrom("rpwc", false)},
		{Name: "isolate-router", Target: "p", Lasts: [2]int{2, 14}, Fails: unknown, Settle: 1, Cuts: true, Play: c.cutFrom("rpwc", false)},
		{Name: "cut-leader-and-worker", Target: "w", Lasts: [2]int{8, 16}, Fails: unknown, Settle: 2, Cuts: true, Play: c.onLeader(c.cutLeader)},
		{Name: "delay", Target: "rpwc", Lasts: [2]int{5, 12}, Beside: true, Play: c.trouble},
		{Name: "loss", Target: "rpwc", Lasts: [2]int{5, 12}, Beside: true, Play: c.trouble},
		{Name: "clock-step-worker", Target: "w", Lasts: [2]int{5, 12}, Fails: severed, Settle: 1, Play: c.step},
		{Name: "clock-rate-worker", Target: "w", Lasts: [2]int{10, 20}, Beside: true, Play: c.slowClock},
		{Name: "clock-rate-beyond", Target: "w", Lasts: [2]int{10, 20}, Fails: unsafe, Settle: 1, Beyond: true, Play: c.slowClock},
		{Name: "clock-step-redis", Redis: true, Lasts: [2]int{5, 12}, Fails: severed, Settle: 2, Play: c.atLeader(c.step)},
		{Name: "clock-rate-redis", Redis: true, Lasts: [2]int{5, 12}, Play: c.atLeader(c.rate)},
		{Name: "disk-full-redis", Redis: true, Lasts: [2]int{3, 10}, Fails: severed, Settle: 1, Play: c.onLeader(c.fillRedis)},
		{Name: "memory-full-redis", Redis: true, Lasts: [2]int{3, 10}, Play: c.onLeader(c.boundRedis)},
		{Name: "disk-full-bodies", Target: "p", Lasts: [2]int{3, 10}, Beside: true, Play: c.fillBodies},
		{Name: "memory-worker", Target: "w", Lasts: [2]int{5, 10}, Alone: true, Play: c.squeeze},
		{Name: "upgrade", Alone: true, Play: c.onLeader(c.upgrade)},
	}
}

// deck are the kinds that the settings choose, as they are with the store.
func (c *cast) deck() []*trial.Kind {
	all := slices.DeleteFunc(c.kinds(), func(k *trial.Kind) bool {
		return k.Redis && c.cfg.Store == overEtcd || len(c.cfg.Only) > 0 && !slices.Contains(c.cfg.Only, k.Name)
	})
	for _, k := range all {
		if k.Spared && c.cfg.Store == overEtcd {
			k.Fails, k.Settle = nil, 0
		}
	}
	return all
}

func kindNames() string {
	var names []string
	for _, k := range new(cast).kinds() {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}
