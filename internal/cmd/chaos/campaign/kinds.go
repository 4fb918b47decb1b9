package main

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// noAnswer is the status of a request whose connection broke.
const noAnswer = 0

// kind is a kind of fault: what it breaks, how, and what a request may suffer.
// From its begin until a while after it has healed requests may fail with the
// statuses that stand here, and with no others; two faults at a time allow what
// either does.
type kind struct {
	name   string
	target string  // letter of the hosts that it may hit: one of them; "" for none in particular
	lasts  [2]int  // tenths of the session TTL, at least and at most
	fails  []int   // statuses; none: not a request may fail
	ran    bool    // only requests that ran at the program, or never ran and were answered when it broke
	settle float64 // TTLs from its healing on, in which requests may still fail
	beside bool    // it may come beside another one
	late   bool    // the program may send what it had admitted when it goes on; the token refuses it
	redis  bool    // only over Redis
	spared bool    // over etcd not a request may fail
	beyond bool    // it lies outside of the conditions of exclusion (S1); tokens must still rise (S2)
	play   action
}

var (
	broken  = []int{http.StatusBadGateway}
	severed = []int{http.StatusBadGateway, http.StatusServiceUnavailable}
	lost    = []int{noAnswer}
	unknown = []int{noAnswer, http.StatusBadGateway, http.StatusServiceUnavailable}
	resumed = []int{http.StatusBadGateway, http.StatusConflict}
	unsafe  = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusConflict}
)

// kinds are all of them; docs/guarantees.md says why.
var kinds []*kind

func init() {
	kinds = []*kind{
		{name: "kill-worker", target: "w", lasts: [2]int{0, 14}, fails: broken, ran: true, play: onProgram(killProgram)},
		{name: "pause-worker", target: "w", lasts: [2]int{3, 16}, fails: resumed, ran: true, settle: 0.5, late: true, play: onProgram(pauseProgram)},
		{name: "restart-worker", target: "w", lasts: [2]int{0, 10}, play: onProgram(restartProgram)},
		{name: "kill-router", target: "p", lasts: [2]int{0, 10}, fails: lost, play: onProgram(killProgram)},
		{name: "pause-router", target: "p", lasts: [2]int{2, 12}, fails: []int{noAnswer, http.StatusBadGateway}, settle: 0.5, play: onProgram(pauseProgram)},
		{name: "restart-router", target: "p", lasts: [2]int{0, 5}, play: onProgram(restartProgram)},

		{name: "kill-store-leader", spared: true, lasts: [2]int{8, 14}, fails: severed, settle: 1, play: onLeader(killLeader)},
		// Not spared: an etcd leader ends live sessions when it resumes, before 3.4.31 and 3.5.13.
		{name: "pause-store-leader", lasts: [2]int{8, 14}, fails: severed, settle: 1, play: onLeader(pauseLeader)},
		{name: "lose-writes", redis: true, lasts: [2]int{8, 14}, fails: severed, settle: 1, play: onLeader(loseWrites)},
		{name: "switch-redis-master", redis: true, play: onLeader(switchMaster)},
		{name: "kill-store-follower", lasts: [2]int{3, 12}, beside: true, play: onLeader(killFollower)},
		{name: "kill-sentinel", redis: true, target: "r", lasts: [2]int{3, 12}, beside: true, play: killSentinel},

		{name: "cut-worker-router", target: "w", lasts: [2]int{2, 14}, fails: unknown, settle: 1, play: cutFrom("p", true)},
		{name: "cut-worker-store", target: "w", lasts: [2]int{2, 16}, fails: severed, settle: 1, play: cutFrom("r", false)},
		{name: "cut-worker-worker", target: "w", lasts: [2]int{2, 14}, beside: true, play: cutFrom("w", true)},
		{name: "cut-router-store", target: "p", lasts: [2]int{2, 14}, beside: true, play: cutFrom("r", false)},
		{name: "cut-client-router", target: "c", lasts: [2]int{2, 10}, fails: lost, settle: 1, play: cutFrom("p", true)},
		{name: "cut-store-leader", spared: true, lasts: [2]int{8, 14}, fails: severed, settle: 1, play: onLeader(cutLeader)},
		{name: "isolate-worker", target: "w", lasts: [2]int{2, 16}, fails: unknown, settle: 1, play: cutFrom("rpwc", false)},
		{name: "isolate-router", target: "p", lasts: [2]int{2, 14}, fails: unknown, settle: 1, play: cutFrom("rpwc", false)},
		{name: "cut-leader-and-worker", target: "w", lasts: [2]int{8, 16}, fails: unknown, settle: 2, play: cutLeaderAndWorker},

		{name: "delay", target: "rpwc", lasts: [2]int{5, 12}, beside: true, play: trouble},
		{name: "loss", target: "rpwc", lasts: [2]int{5, 12}, beside: true, play: trouble},
		{name: "reorder", target: "rpwc", lasts: [2]int{5, 12}, beside: true, play: trouble},
		{name: "bandwidth", target: "rpwc", lasts: [2]int{5, 12}, beside: true, play: trouble},

		{name: "clock-step-worker", target: "w", lasts: [2]int{5, 12}, fails: severed, settle: 1, play: onProgram(stepClock)},
		{name: "clock-rate-worker", target: "w", lasts: [2]int{10, 20}, beside: true, play: onProgram(slowClock)},
		{name: "clock-rate-beyond", target: "w", lasts: [2]int{10, 20}, fails: unsafe, settle: 1, beyond: true, play: onProgram(slowClock)},
		{name: "clock-step-redis", redis: true, lasts: [2]int{5, 12}, fails: severed, settle: 2, play: onLeader(stepRedis)},
		{name: "clock-rate-redis", redis: true, lasts: [2]int{5, 12}, play: onLeader(slowRedis)},

		{name: "disk-full-redis", redis: true, lasts: [2]int{3, 10}, fails: severed, settle: 1, play: onLeader(fillRedis)},
		{name: "memory-full-redis", redis: true, lasts: [2]int{3, 10}, play: onLeader(boundRedis)},
		{name: "disk-full-bodies", target: "p", lasts: [2]int{3, 10}, beside: true, play: fillBodies},
		{name: "memory-worker", target: "w", lasts: [2]int{5, 10}, play: onProgram(squeeze)},

		{name: "upgrade", fails: nil, play: onLeader(upgrade)},
	}
}

// starved is what happens to all of them when the machine itself is too busy. It
// is in no plan.
var starved = &kind{name: "starved-machine", fails: []int{noAnswer, http.StatusBadGateway, http.StatusServiceUnavailable}, settle: 3}

func kindOf(name string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// with returns the kind as it is with a store, and whether there is one.
func (k *kind) with(store string) (*kind, bool) {
	if store != overEtcd {
		return k, true
	}
	if k.spared {
		strict := *k
		strict.fails, strict.settle = nil, 0
		k = &strict
	}
	return k, !k.redis
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// slack is how much longer than what a promise says it may take until all of
// its requests are answered.
const slack = 1500 * time.Millisecond

// over returns how long after a fault has healed requests may fail. Connections
// that a cut has silenced are tried again by TCP after up to as long as it lasted.
func (k *kind) over(lasted, ttl time.Duration) time.Duration {
	if len(k.fails) == 0 {
		return 0
	}
	after := time.Duration(k.settle * float64(ttl))
	if strings.HasPrefix(k.name, "cut-") || strings.HasPrefix(k.name, "isolate-") {
		after = max(after, lasted)
	}
	return after + slack
}
