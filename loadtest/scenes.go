//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/load"
)

// scene is a workload with the work in the critical section.
type scene struct {
	name, title string
	where       string // as a part of a sentence
	mix         load.Mix
	ids         []string // of the contenders that take part
	rounds      int
	time        time.Duration // of a turn
	warmUp      time.Duration
	ttl         time.Duration
	wait        time.Duration // of workWait
	events      []event
	how         string // what of it is not as in the other scenes
}

// What runs by default, and in the short form.
const (
	usualWorkloads     = "uniform,zipf,hot"
	shortWorkloads     = "uniform,zipf,hot,hot-stock-postgres," + workloadMembers
	usualContenders    = "plain,lock,redsync,redislock,rueidislock,redlock,quorum,hash,keyway,keyway-batch,sidecar,none-router,none"
	shortContenders    = "plain,lock,redsync,hash,keyway,none-router,none"
	shortHotContenders = "plain,lock,redsync,hash,keyway,keyway-batch,none-router,none"
	postgresContenders = "plain,pg-row,hash,keyway,keyway-batch"
	membersContenders  = "plain,hash,keyway"
)

// workloadMembers is the workload in which members change. Unless there are
// other events its turn is one of its own, with leases that are short, so that
// what a dead process held is free again within it.
const (
	workloadMembers = "members"
	membersTime     = 8 * time.Second
	membersTTL      = 2 * time.Second
	membersKeys     = 16 // few, so that requests wait for each at any moment
	membersWait     = 10 * time.Millisecond
	membersEvents   = "1s add, 2500ms drain w1, 4s kill w2"
)

// zipfSkew is the exponent of zipf: the i-th key comes with weight 1/i^exponent.
const zipfSkew = 1.1

// plan settles which scenes there are, and who takes part in which.
func (o *options) plan() (err error) {
	asked := o.workloads
	switch {
	case len(asked) > 0:
	case o.short:
		asked = strings.Split(shortWorkloads, ",")
	default:
		asked = strings.Split(usualWorkloads, ",")
	}
	if slices.Equal(o.names, []string{"all"}) {
		o.names = ids()
	}
	var named []string
	for _, workload := range asked {
		s, err := o.sceneOf(workload)
		if err != nil {
			return err
		}
		if s.ids = o.names; len(s.ids) == 0 {
			s.ids = o.usual(s)
		}
		named = append(named, s.ids...)
		o.scenes = append(o.scenes, s)
	}
	if len(o.names) > 0 {
		named = o.names
	} else {
		named = distinct(named)
	}
	o.chosen, err = choose(named)
	return err
}

// distinct are the names without repetitions, in the order of [contenders].
func distinct(names []string) []string {
	return slices.DeleteFunc(ids(), func(id string) bool { return !slices.Contains(names, id) })
}

// usual are the contenders that take part in a scene if none are named.
func (o *options) usual(s scene) []string {
	list := usualContenders
	switch {
	case s.name == workloadMembers:
		list = membersContenders
	case s.mix.Path == workStockPostgres:
		list = postgresContenders
	case o.short && s.name == "hot":
		list = shortHotContenders
	case o.short:
		list = shortContenders
	}
	return strings.Split(list, ",")
}

// work is something that can be done in the critical section.
type work struct{ path, title, where string }

// works are what can be done in the critical section, with words for a title.
var works = []work{
	{workNone, "no work", ""},
	{workWait, "1ms of waiting", " with 1ms of waiting each"},
	{workStockPostgres, "a transaction in PostgreSQL each", " with a transaction in PostgreSQL each"},
}

// usualWait is how long the work wait takes; a timer makes it longer.
const usualWait = time.Millisecond

// sceneOf returns the scene of a name: of keys, with a work if one follows.
func (o *options) sceneOf(name string) (scene, error) {
	if name == workloadMembers {
		return o.members()
	}
	for _, w := range works[1:] {
		if keys, ok := strings.CutSuffix(name, "-"+w.path[1:]); ok {
			return o.scene(name, keys, w)
		}
	}
	return o.scene(name, name, works[0])
}

// scene puts keys and a work together.
func (o *options) scene(name, keys string, w work) (s scene, err error) {
	s = scene{name: name, mix: load.Mix{Keys: o.keys, Method: "POST", Path: w.path}, rounds: o.rounds, time: o.time, warmUp: o.warmUp, ttl: o.ttl, wait: usualWait, events: o.events}
	switch keys {
	case "uniform":
		s.title, s.where = "uniform keys", "on uniform keys"
	case "zipf":
		s.title, s.where, s.mix.Skew = "zipf 1.1", "on zipf 1.1 keys", zipfSkew
	case "hot":
		s.title, s.where, s.mix.Keys = "one hot key", "on one hot key", 1
	default:
		return s, cli.Usagef("--workloads: there is no %q; there are uniform, zipf, hot, each also with -wait or -stock-postgres, and %s", name, workloadMembers)
	}
	s.title += ", " + w.title
	s.where += w.where
	return s, nil
}

// members is the scene of changing members.
func (o *options) members() (s scene, err error) {
	if s, err = o.sceneOf("uniform-wait"); err != nil {
		return s, err
	}
	s.mix.Keys = min(o.keys, membersKeys)
	s.name, s.title, s.where = workloadMembers, "workers come, go and die", "while workers came, went and died"
	if len(o.events) > 0 {
		return s, nil
	}
	s.rounds, s.time, s.ttl, s.wait = 1, membersTime, membersTTL, membersWait
	if s.events, err = parseEvents(membersEvents); err != nil {
		return s, err
	}
	s.how = fmt.Sprintf("One turn of %v: %s. %d busy keys, %v of waiting in each critical section; leases of %v, Keyway's and the locks'.",
		s.time, membersEvents, s.mix.Keys, s.wait, s.ttl)
	return s, nil
}

// takes reports whether a contender takes part.
func (s scene) takes(c contender) bool { return slices.Contains(s.ids, c.id) }

// changes reports whether members come, go or stand still.
func (s scene) changes() bool {
	return slices.ContainsFunc(s.events, func(e event) bool { return e.kind != eventRestart })
}

// alone reports whether each turn of a scene has processes of its own: events change them.
func (s scene) alone() bool { return len(s.events) > 0 }

// together returns the scenes that share one set of a contender's processes: it takes part in them,
// and they need no processes of their own.
func (o *options) together(c contender) (scenes []scene) {
	for _, s := range o.scenes {
		if s.takes(c) && !s.alone() {
			scenes = append(scenes, s)
		}
	}
	return scenes
}

// stores are those beside Redis that a contender needs in some scenes.
func stores(c contender, scenes []scene) (names []string) {
	if c.store != "" {
		names = append(names, c.store)
	}
	if c.store != storePostgres && slices.ContainsFunc(scenes, func(s scene) bool { return s.takes(c) && s.mix.Path == workStockPostgres }) {
		names = append(names, storePostgres)
	}
	return names
}
