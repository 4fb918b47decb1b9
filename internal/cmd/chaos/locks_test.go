package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lockPlay is what callers of two processes say to a judge.
type lockPlay struct {
	*lockJudge
	calls int64
	busy  []outage
}

// asks has a caller ask for the lock of key 1, of a process that may die, or not.
func (p *lockPlay) asks(life string, lease time.Duration) *said {
	p.calls++
	s := &said{Life: life, Call: p.calls, Key: 1, Lease: lease}
	p.says(s, asks)
	return s
}

func (p *lockPlay) says(s *said, step step) {
	s.Step = step
	p.hear(*s)
}

// has gives the caller the lock.
func (p *lockPlay) has(s *said, token int64) *said {
	s.Token, s.Until = token, time.Now().Add(s.Lease)
	p.says(s, has)
	return s
}

func (p *lockPlay) takes(token int64) *said { return p.has(p.asks("lives", 4*time.Second), token) }

// reads has a caller ask for a lock for reading.
func (p *lockPlay) reads(life string) *said {
	p.calls++
	s := &said{Life: life, Call: p.calls, Key: 1, Read: true, Lease: 4 * time.Second}
	p.says(s, asks)
	return s
}

func (p *lockPlay) unlocks(s *said) {
	p.says(s, letsGo)
	p.says(s, unlocked)
}

func (p *lockPlay) loses(s *said) {
	s.Lost = true
	p.unlocks(s)
}

// losesAfter has a caller lose a lock of a second that has come to it so long after it was free.
func (p *lockPlay) losesAfter(took time.Duration) {
	time.Sleep(50 * time.Second)
	x, next := p.takes(7), p.asks("lives", time.Second)
	p.unlocks(x)
	time.Sleep(took)
	p.loses(p.has(next, 8))
}

// What may not be with locks is found, and what may be is not.
func TestLockJudge(t *testing.T) {
	const ttl = 4 * time.Second
	away := []outage{{100 * time.Second, 110 * time.Second}, {200 * time.Second, 210 * time.Second}}
	forgotten := away[1:]
	for _, tt := range []struct {
		name, want string
		play       func(*lockPlay)
	}{
		{"one after the other", "", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			p.unlocks(p.takes(8))
		}},
		{"two at once", "is held with token 7, and with 8", func(p *lockPlay) {
			first := p.takes(7)
			p.unlocks(p.takes(8))
			p.unlocks(first)
		}},
		{"two at once, one of which is lost later", "is held with token 7, and with 8", func(p *lockPlay) {
			time.Sleep(101 * time.Second)
			first := p.takes(7)
			second := p.takes(8)
			p.says(first, holds)
			p.says(second, holds)
			p.loses(first)
			p.unlocks(second)
		}},
		{"one after another has lost it", "", func(p *lockPlay) {
			time.Sleep(101 * time.Second)
			first := p.takes(7)
			p.unlocks(p.takes(8))
			p.loses(first)
		}},
		{"a token falls", "token 7 after 8", func(p *lockPlay) {
			p.unlocks(p.takes(8))
			p.unlocks(p.takes(7))
		}},
		{"lost with its owner", "", func(p *lockPlay) {
			time.Sleep(99 * time.Second)
			x := p.takes(7)
			time.Sleep(4 * time.Second)
			p.loses(x)
		}},
		{"an unlock without an answer", "nobody knows whether lock-1 is unlocked", func(p *lockPlay) {
			x := p.takes(7)
			x.Err = "no answer"
			p.unlocks(x)
		}},
		{"an unlock without an answer, whose key has no owner", "", func(p *lockPlay) {
			time.Sleep(99 * time.Second)
			x := p.takes(7)
			p.says(x, letsGo)
			time.Sleep(2 * time.Second)
			x.Err = "no answer"
			p.says(x, unlocked)
		}},
		{"an unlock without an answer, by a router that may be killed", "", func(p *lockPlay) {
			p.born("python")
			x := p.has(p.asks("python", ttl), 7)
			x.Err = "no answer"
			p.unlocks(x)
		}},
		{"lost in a planned move", "was lost though nothing that kept it was", func(p *lockPlay) {
			time.Sleep(50 * time.Second)
			p.loses(p.takes(7))
		}},
		{"a long one lost with its owner", "was lost though nothing that kept it was", func(p *lockPlay) {
			time.Sleep(105 * time.Second)
			p.loses(p.has(p.asks("lives", longTTLs*ttl), 7))
		}},
		{"a long one lost with the store", "", func(p *lockPlay) {
			time.Sleep(205 * time.Second)
			p.loses(p.has(p.asks("lives", longTTLs*ttl), 7))
		}},
		{"granted late, without an owner", "", func(p *lockPlay) {
			time.Sleep(99 * time.Second)
			x, next := p.takes(7), p.asks("lives", ttl)
			p.unlocks(x)
			time.Sleep(14 * time.Second)
			p.unlocks(p.has(next, 8))
		}},
		{"granted late", "was free and waited for since 50.000s", func(p *lockPlay) {
			time.Sleep(50 * time.Second)
			x, next := p.takes(7), p.asks("lives", ttl)
			p.unlocks(x)
			time.Sleep(grantTime + 1)
			p.unlocks(p.has(next, 8))
		}},
		{"never granted", "was free and waited for since 50.000s", func(p *lockPlay) {
			time.Sleep(50 * time.Second)
			x := p.takes(7)
			p.asks("lives", ttl)
			p.unlocks(x)
			time.Sleep(grantTime + 1)
		}},
		{"granted late to one who came late", "", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			time.Sleep(grantTime + 1)
			p.unlocks(p.takes(8))
		}},
		{"lost on a machine that was too busy", "", func(p *lockPlay) {
			p.busy = []outage{{48 * time.Second, 49 * time.Second}}
			time.Sleep(50 * time.Second)
			p.loses(p.takes(7))
		}},
		{"lost while a free key came late", "", func(p *lockPlay) { p.losesAfter(250 * time.Millisecond) }},
		{"lost after a free key came in time", "was lost though nothing that kept it was", func(p *lockPlay) { p.losesAfter(150 * time.Millisecond) }},
		{"refused for a lost lock while a free key came late", "", func(p *lockPlay) {
			time.Sleep(50 * time.Second)
			x, next := p.takes(7), p.asks("lives", time.Second)
			many := &said{Life: "lives", Call: 1000, Key: 2, Many: true, Lease: 4 * time.Second, Err: "lost"}
			p.says(many, asks)
			p.unlocks(x)
			time.Sleep(time.Second)
			p.unlocks(p.has(next, 8))
			p.says(many, fails)
		}},
		{"refused", "asked for since 0.000s (lives): unavailable", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			x := p.asks("lives", ttl)
			time.Sleep(50 * time.Second)
			x.Err = "unavailable"
			p.says(x, fails)
		}},
		{"given up", "", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			p.says(p.asks("lives", ttl), fails)
		}},
		{"a killed holder's lock ends with its lease", "", func(p *lockPlay) {
			p.has(p.asks("dies", ttl), 7)
			next := p.asks("lives", ttl)
			time.Sleep(time.Second)
			p.died("dies")
			time.Sleep(ttl)
			p.unlocks(p.has(next, 8))
		}},
		{"a killed holder's lock ends before its lease", "is held with token 7, and with 8", func(p *lockPlay) {
			p.has(p.asks("dies", ttl), 7)
			next := p.asks("lives", ttl)
			p.died("dies")
			time.Sleep(ttl - 1)
			p.unlocks(p.has(next, 8))
		}},
		{"a lock that was another's before its holder was killed", "is held with token 7, and with 8", func(p *lockPlay) {
			p.has(p.asks("dies", ttl), 7)
			next := p.takes(8)
			p.died("dies")
			p.unlocks(next)
		}},
		{"a killed holder's lock does not end", "was free and waited for since 5.000s", func(p *lockPlay) {
			p.has(p.asks("dies", ttl), 7)
			next := p.asks("lives", ttl)
			time.Sleep(time.Second)
			p.died("dies")
			time.Sleep(ttl + grantTime + 1)
			p.unlocks(p.has(next, 8))
		}},
		{"a lock may have been granted to one who is dead", "", func(p *lockPlay) {
			x := p.takes(7)
			p.asks("dies", ttl)
			next := p.asks("lives", ttl)
			p.unlocks(x)
			p.died("dies")
			time.Sleep(ttl + grantTime)
			p.unlocks(p.has(next, 9))
		}},
		{"a killed caller waits on", "was free and waited for since 4.000s", func(p *lockPlay) {
			x := p.takes(7)
			p.asks("dies", ttl)
			next := p.asks("lives", ttl)
			p.unlocks(x)
			p.died("dies")
			time.Sleep(ttl + grantTime + 1)
			p.unlocks(p.has(next, 9))
		}},
		{"nobody hears the dead", "", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			x := p.asks("dies", ttl)
			p.died("dies")
			p.has(x, 6)
			p.unlocks(x)
		}},
		{"forgotten", "", func(p *lockPlay) {
			x, next := p.takes(7), p.asks("lives", ttl)
			p.says(x, forgets)
			time.Sleep(ttl + grantTime)
			p.unlocks(p.has(next, 8))
		}},
		{"forgotten, and ends before its lease", "is held with token 7, and with 8", func(p *lockPlay) {
			p.says(p.takes(7), forgets)
			p.unlocks(p.takes(8))
		}},
		{"left, and forgotten by the store", "", func(p *lockPlay) {
			time.Sleep(180 * time.Second)
			p.says(p.has(p.asks("lives", 60*time.Second), 7), forgets)
			time.Sleep(40 * time.Second)
			p.unlocks(p.takes(8))
		}},
		{"left before the store forgets, and another's by then", "is held with token 7, and with 8", func(p *lockPlay) {
			time.Sleep(180 * time.Second)
			p.says(p.has(p.asks("lives", 60*time.Second), 7), forgets)
			p.unlocks(p.takes(8))
		}},
		{"left with a lease that the store does not keep", "is held with token 7, and with 8", func(p *lockPlay) {
			time.Sleep(199 * time.Second)
			p.says(p.has(p.asks("lives", ttl), 7), forgets)
			time.Sleep(2 * time.Second)
			p.unlocks(p.takes(8))
		}},
		{"readers together", "", func(p *lockPlay) {
			one, two := p.has(p.reads("lives"), 7), p.has(p.reads("lives"), 7)
			p.unlocks(one)
			three := p.has(p.reads("lives"), 7)
			p.unlocks(two)
			p.unlocks(three)
			p.unlocks(p.takes(8))
		}},
		{"a writer beside a reader", "is held with token 7, and with 8", func(p *lockPlay) {
			one, two := p.has(p.reads("lives"), 7), p.has(p.reads("lives"), 7)
			p.unlocks(one)
			p.unlocks(p.takes(8))
			p.unlocks(two)
		}},
		{"a reader beside a writer", "is held with token 7, and with 8", func(p *lockPlay) {
			writer := p.takes(7)
			p.unlocks(p.has(p.reads("lives"), 8))
			p.unlocks(writer)
		}},
		{"a reader with a writer's token", "token 7 after 7", func(p *lockPlay) {
			p.unlocks(p.takes(7))
			p.unlocks(p.has(p.reads("lives"), 7))
		}},
		{"a dead reader's lock ends before its lease", "is held with token 7, and with 8", func(p *lockPlay) {
			p.has(p.reads("dies"), 7)
			p.died("dies")
			p.unlocks(p.has(p.reads("lives"), 7))
			p.unlocks(p.takes(8))
		}},
		{"a reader waits for a reader alone", "was free and waited for since 5.000s", func(p *lockPlay) {
			first, writer, second := p.has(p.reads("lives"), 7), p.asks("lives", 4*time.Second), p.reads("lives")
			time.Sleep(time.Second)
			p.says(writer, fails) // it may have the lock until the end of its lease, as far as the judge knows
			time.Sleep(4*time.Second + grantTime + 1)
			p.has(second, 7)
			p.unlocks(first)
			p.unlocks(second)
		}},
		{"a reader waits behind a writer", "", func(p *lockPlay) {
			first, writer, second := p.has(p.reads("lives"), 7), p.asks("lives", 4*time.Second), p.reads("lives")
			time.Sleep(time.Minute)
			p.unlocks(first)
			p.unlocks(p.has(writer, 8))
			p.unlocks(p.has(second, 9))
		}},
		{"a caller that waits for another key holds this one", "", func(p *lockPlay) {
			many := &said{Life: "lives", Call: 1000, Key: 1, Many: true, Lease: 4 * time.Second}
			p.says(many, asks)
			time.Sleep(time.Minute)
			p.unlocks(p.has(many, 7))
		}},
		{"nothing", "nothing was locked", func(*lockPlay) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				p := &lockPlay{lockJudge: newLockJudge(grantTime, func() time.Duration { return time.Since(begin) })}
				p.born("lives")
				p.born("dies")
				tt.play(p)
				p.finish()
				got := strings.Join(p.conclude(away, forgotten, p.busy, ttl).violations, "\n")
				if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}

// How long keys take from an unlock to their next holders is counted where they have owners.
func TestLockReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		p := &lockPlay{lockJudge: newLockJudge(grantTime, func() time.Duration { return time.Since(begin) })}
		p.born("lives")
		x := p.takes(1)
		for i, took := range []time.Duration{time.Millisecond, 3 * time.Millisecond, promptly + 1, 30 * time.Second} { // the last one in an outage
			next := p.asks("lives", time.Second)
			p.unlocks(x)
			time.Sleep(took)
			x = p.has(next, int64(i)+2)
		}
		p.unlocks(x)
		r := p.conclude([]outage{{time.Second, 29 * time.Second}}, nil, nil, time.Second)
		var b strings.Builder
		r.print(&b)
		if want := "p50 3ms, p99 100ms, longest 100ms; 1 of 3 took more than 100ms"; !strings.Contains(b.String(), want) || len(r.violations) > 0 {
			t.Errorf("%s%q, want %s", &b, r.violations, want)
		}
		fmt.Fprint(t.Output(), &b)
	})
}
