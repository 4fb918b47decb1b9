package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is one fault of the plan, and what became of it.
type fault struct {
	kind   *kind
	host   string        // that it hits; "" for what the kind finds at the time
	delay  time.Duration // after the begin of its episode
	lasts  time.Duration
	way    direction // of a cut
	amount float64   // from 0 to 1: how bad it is

	process    string        // that was hit
	begin, end time.Duration // by the observer's clock; end: healed
	broke      time.Duration // when a killed process was dead
	note       string
	err        error
}

// direction says which frames a cut loses.
type direction uint8

const (
	bothWays direction = iota
	outward            // from the host
	inward             // to the host
)

func (d direction) String() string { return [...]string{"both ways", "outward", "inward"}[d] }

func (f *fault) String() string {
	text := f.kind.name
	if f.host != "" {
		text += " " + f.host
	}
	if strings.HasPrefix(f.kind.name, "cut-") || strings.HasPrefix(f.kind.name, "isolate-") {
		text += " " + f.way.String()
	}
	if f.lasts > 0 {
		text += fmt.Sprintf(" %.1fs", f.lasts.Seconds())
	}
	return text
}

// episode is one fault or two at a time, and the quiet time after them.
type episode []*fault

// quiet is how long after an episode has settled not a request may fail.
const quiet = 3 * time.Second

// takes returns about how long an episode takes.
func (e episode) takes(ttl time.Duration) (d time.Duration) {
	for _, f := range e {
		t := f.delay + f.lasts + f.kind.over(f.lasts, ttl)
		if f.lasts == 0 {
			t += ttl // it ends by itself
		}
		d = max(d, t)
	}
	return d + quiet + ttl/2
}

func (e episode) String() string {
	var list []string
	for _, f := range e {
		list = append(list, f.String())
	}
	return strings.Join(list, " + ")
}

// plan makes the episodes that fit into a time: each kind comes once before any
// comes again. A plan is a function of the configuration.
func plan(cfg config) (all []episode) {
	rng := rand.New(rand.NewPCG(uint64(cfg.Seed), 1))
	var deck []*kind
	for left := cfg.Time; ; {
		if len(deck) == 0 {
			deck = cfg.deck()
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		e := episode{newFault(rng, cfg, deck[0], "")}
		deck = deck[1:]
		// Planned moves come by themselves: what they promise is seen best so.
		if i := slices.IndexFunc(deck, func(k *kind) bool { return k.beside }); i >= 0 && !e[0].planned() && rng.IntN(2) == 0 {
			second := newFault(rng, cfg, deck[i], e[0].host)
			second.delay = time.Duration(rng.Int64N(int64(cfg.TTL / 5)))
			e, deck = append(e, second), slices.Delete(deck, i, i+1)
		}
		if left -= e.takes(cfg.TTL); left < 0 {
			return all
		}
		all = append(all, e)
	}
}

// planned reports whether everybody is told of a fault, and nothing may fail.
func (f *fault) planned() bool {
	return slices.Contains([]string{"restart-worker", "restart-router", "switch-redis-master", "memory-worker", "upgrade"}, f.kind.name)
}

func (c config) deck() (deck []*kind) {
	for _, k := range kinds {
		k, there := k.with(c.Store)
		if there && (len(c.Only) == 0 || slices.Contains(c.Only, k.name)) {
			deck = append(deck, k)
		}
	}
	return deck
}

func newFault(rng *rand.Rand, cfg config, k *kind, other string) *fault {
	f := &fault{kind: k, way: direction(rng.IntN(3)), amount: rng.Float64()}
	if k.lasts[1] > 0 {
		tenths := float64(k.lasts[0]) + rng.Float64()*float64(k.lasts[1]-k.lasts[0])
		f.lasts = time.Duration(tenths * float64(cfg.TTL) / 10).Round(100 * time.Millisecond)
	}
	var hosts []string
	for _, letter := range k.target {
		for i := range map[rune]int{'r': storeHosts, 'p': cfg.Routers, 'w': cfg.Workers, 'c': clientHosts}[letter] {
			hosts = append(hosts, fmt.Sprint(string(letter), i+1))
		}
	}
	hosts = slices.DeleteFunc(hosts, func(h string) bool { return h == other })
	if len(hosts) > 0 {
		f.host = hosts[rng.IntN(len(hosts))]
	}
	return f
}
