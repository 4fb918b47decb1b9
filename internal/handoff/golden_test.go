package handoff

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/golden"
)

// TestTranscripts plays the scenarios in testdata. Each line that begins with
// ">" is a command; what follows it is what the machines then did. The
// commands are the methods' cases of script.command.
func TestTranscripts(t *testing.T) { golden.Play(t, play) }

// script plays a scenario.
type script struct {
	w     *world
	out   bytes.Buffer
	cut   map[int]string // by worker: "requests" or "replies" that do not arrive
	saved *modelStore
}

func play(t *testing.T, text string) []byte {
	t.Helper()
	s := &script{cut: map[int]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, ">"):
			if s.out.Len() > 0 {
				s.out.WriteByte('\n')
			}
			fmt.Fprintln(&s.out, line)
			if err := s.command(strings.Fields(line[1:])); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if s.w.bad != nil {
				t.Fatalf("%s: %v", line, s.w.bad)
			}
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&s.out, line)
		}
	}
	return s.out.Bytes()
}

// command carries out one line of a scenario.
func (s *script) command(f []string) error {
	if f[0] == "cluster" {
		return s.cluster(f[1:])
	}
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "run": // run 2s: let time pass
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		s.run(d)
	case "ring": // ring ab ba: by partition, the workers in order of preference
		s.ring(f[1:])
	case "store": // store restart | save | failover | flush | step
		return s.store(arg(1))
	case "state": // print records, residue and what each worker serves
		s.state()
	default:
		return s.proc(f[0], arg(1), arg(2))
	}
	return nil
}

// cluster sets the scene: cluster workers partitions new|old, with one key
// per partition. A new store is trusted to be empty.
func (s *script) cluster(f []string) error {
	procs, err := strconv.Atoi(f[0])
	if err != nil {
		return err
	}
	parts, err := strconv.Atoi(f[1])
	if err != nil {
		return err
	}
	sc := &scope{procs: procs, warm: []int{}, cold: f[2] == "old"}
	sc.views = [][][]int{make([][]int, parts)}
	for p := range parts {
		sc.keys = append(sc.keys, p)
	}
	s.w = newWorld(sc, 10*time.Second, 0, 0)
	if !sc.cold {
		s.w.store.generation = "g0" // without a quarantine
	}
	s.w.log = func(format string, args ...any) {
		fmt.Fprintf(&s.out, "%7.3fs %s\n", s.w.now.Seconds(), strings.TrimLeft(fmt.Sprintf(format, args...), " "))
	}
	return nil
}

func (s *script) ring(owners []string) {
	view := make([][]int, len(owners))
	for p, o := range owners {
		for _, c := range o {
			view[p] = append(view[p], int(c-'a'))
		}
	}
	s.w.sc.views = append(s.w.sc.views, view)
	s.w.ring = len(s.w.sc.views) - 1
	s.drain()
}

func (s *script) run(d time.Duration) {
	w := s.w
	end := w.now + d
	s.drain()
	for w.now < end {
		w.passUntil(end)
		s.drain()
	}
}

// drain is world.drain, with calls that do not get through.
func (s *script) drain() {
	w := s.w
	for busy := true; busy; {
		busy = false
		for _, p := range w.procs {
			if p.up && p.paused < 0 && p.seen != w.truth(p) {
				w.tell(p)
				busy = true
			}
		}
		i := slices.IndexFunc(w.msgs, func(m message) bool { return w.procs[m.from].paused < 0 })
		if i < 0 {
			continue
		}
		busy = true
		switch s.cut[w.msgs[i].from] {
		case "requests":
			w.msgs[i].reply = Reply{ID: callID(w.msgs[i].call), Err: errUnknown}
		case "replies":
			w.carryOut(i)
			w.msgs[i].reply = Reply{ID: callID(w.msgs[i].call), Err: errUnknown}
		default:
			w.carryOut(i)
		}
		w.answer(i)
	}
}

func (s *script) store(what string) error {
	w := s.w
	switch what {
	case "restart":
		w.store.restart()
	case "save": // what a failover goes back to
		s.saved = w.store.clone()
	case "failover":
		life := w.store.life
		w.store = s.saved.clone()
		w.store.life = life
		w.store.restart()
	case "flush":
		w.left[evFlush]++
		w.faults++
		w.doStore(action{kind: actFlush})
	case "step":
		w.skew += 10 * time.Second
	default:
		return fmt.Errorf("unknown")
	}
	return nil
}

func (s *script) proc(what, who, arg string) error {
	w := s.w
	if who == "" || int(who[0]-'a') >= len(w.procs) {
		return fmt.Errorf("unknown command or worker")
	}
	slot := int(who[0] - 'a')
	p := w.procs[slot]
	switch what {
	case "start":
		w.spawn(slot)
	case "restart": // with proof that the old process is dead, if "proof"
		w.sc.proof = arg == "proof"
		w.respawn(p)
	case "crash":
		w.endProcess(p)
	case "notice": // the others see that it is down
		p.noticed = true
	case "suspect": // the others believe that worker a is down
		w.sc.suspect = true
	case "leave":
		p.leaving = true
		w.step(p, Leave{Now: arg == "now"})
	case "pause":
		p.paused = w.now
	case "resume": // its wall clock ran on meanwhile, unless "still"
		p.mono -= w.now - p.paused
		if arg == "still" {
			p.wall -= w.now - p.paused
		}
		p.paused, p.resumed = -1, true
		w.step(p, Tick{})
	case "wall": // its wall clock steps
		d, err := time.ParseDuration(arg)
		if err != nil {
			return err
		}
		p.wall += d
		w.step(p, Tick{})
	case "cut": // cut a requests | replies
		s.cut[slot] = arg
	case "heal":
		delete(s.cut, slot)
	case "lock": // a request for a key wins its mutex and runs, if admitted
		return s.lock(p, arg)
	case "end": // the handler of a key ends
		return s.end(p, arg)
	case "hold", "renew", "free": // a holder elsewhere locks a key, renews or releases the lock
		return s.holder(what, p, arg)
	case "expire": // its session expires early
		w.store.end(func(m modelSession) bool { return m.Incarnation == p.name })
	case "low": // the tokens of a partition run low
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		w.step(p, SequenceLow{Partition: n})
	default:
		return fmt.Errorf("unknown")
	}
	s.drain()
	return nil
}

func (s *script) lock(p *proc, key string) error {
	k, err := strconv.Atoi(strings.TrimPrefix(key, "k"))
	if err != nil {
		return err
	}
	if !s.w.lock(p, k) {
		s.w.say("%s: not admitted", p.name)
		return nil
	}
	e := p.execs[len(p.execs)-1]
	s.w.say("%s: %s runs with token %s", p.name, key, token(e.token))
	s.w.start(p, len(p.execs)-1, true)
	return nil
}

func (s *script) end(p *proc, key string) error {
	i := slices.IndexFunc(p.execs, func(e exec) bool { return keyName(e.key) == key })
	if i < 0 {
		return fmt.Errorf("does not run")
	}
	s.w.end(p, i)
	s.drain()
	return nil
}

// holder lets the holder of a key's lock make a call.
func (s *script) holder(what string, p *proc, key string) error {
	w := s.w
	k, err := strconv.Atoi(strings.TrimPrefix(key, "k"))
	if err != nil {
		return err
	}
	i := p.lockOf(k)
	switch {
	case what == "hold" && w.hold(p, k):
		w.say("%s: %s is locked with token %s", p.name, key, token(w.held[k].token))
	case what == "hold":
		w.say("%s: not admitted", p.name)
	case i < 0:
		w.say("%s: not held", p.name)
	case p.locks[i].frozen:
		w.say("%s: elsewhere", p.name)
	case !w.reaches(p, p.locks[i]):
		w.say("%s: not held, though kept from others", p.name)
	case what == "renew":
		w.renew(p, i)
		w.say("%s: %s is renewed with token %s", p.name, key, token(w.held[k].token))
	default:
		w.free(p, i)
		w.say("%s: %s is released", p.name, key)
	}
	return nil
}

func (s *script) state() {
	for i, part := range s.w.store.parts {
		fmt.Fprintf(&s.out, "p%d %s", i, record(part.record))
		for _, p := range s.w.procs {
			if p.up && p.tables[i].open {
				fmt.Fprintf(&s.out, " served by %s", p.name)
				if len(p.tables[i].blocked) > 0 {
					fmt.Fprintf(&s.out, " but %s", strings.Join(p.tables[i].blocked, " "))
				}
			}
		}
		if len(part.residue) > 0 {
			fmt.Fprintf(&s.out, " residue %s", residue(part.residue))
		}
		if part.locks != "" {
			fmt.Fprintf(&s.out, " locks %s", lockList(part.locks))
		}
		s.out.WriteByte('\n')
	}
}
