// Package fabric is a network of hosts on one Linux machine whose faults are
// exact. A [Host] is a network namespace with a TAP device; a [Switch], which
// is this process, forwards the Ethernet frames of all hosts and treats those
// of each ordered pair of them by a [Rule]: so every fault is one-way, needs no
// kernel module, and follows a seed.
//
// Namespaces and devices are held by file descriptors only: they are gone with
// the process, however it ends.
package fabric

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// MAC is the address of a port.
type MAC [6]byte

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

const (
	headerBytes = 14      // of an Ethernet frame: to, from, type
	maxFrame    = 9 << 10 // bytes
	maxWaiting  = 8 << 20 // bytes that wait for one port
)

// Rule is how frames from one host to another are treated. The zero value
// forwards them all at once. Frames of one way keep their order.
type Rule struct {
	Cut    bool          // none passes
	Loss   float64       // share of the frames that are lost
	Delay  time.Duration // of each frame
	Jitter time.Duration // up to this much more
}

// and returns a rule that is as bad as two together.
func (r Rule) and(other Rule) Rule {
	return Rule{r.Cut || other.Cut, 1 - (1-r.Loss)*(1-other.Loss), r.Delay + other.Delay, r.Jitter + other.Jitter}
}

// Way is from one port to another.
type Way struct{ From, To string }

// Frames is a port's device: Read returns one frame, Write takes one.
type Frames = io.ReadWriteCloser

// Counts are the frames that a switch has seen.
type Counts struct{ Forwarded, Lost, Delayed int64 }

// Switch forwards frames between its ports by a table of their addresses;
// frames for all go to all others. A frame for an address that is not there is
// dropped.
type Switch struct {
	seed uint64
	done chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows, and what belongs to paths and ports
	ports  map[string]*port
	macs   map[MAC]*port
	paths  map[Way]*path
	counts Counts
	closed bool
}

// ErrPort is returned for a port that is not there, or is there twice.
var ErrPort = errors.New("fabric: port")

// NewSwitch returns a switch that decides by the seed what is lost and how long
// it is held back: the n-th frame from one port to another fares alike each
// time, under one rule.
func NewSwitch(seed uint64) *Switch {
	return &Switch{seed: seed, done: make(chan struct{}), ports: make(map[string]*port), macs: make(map[MAC]*port), paths: make(map[Way]*path)}
}

// port is where a host is attached.
type port struct {
	name    string
	device  Frames
	wake    chan struct{} // holds one element
	waiting []arrival     // the earliest ones first
	bytes   int           // of waiting
}

// path is the way from one port to another.
type path struct {
	rules []*Rule // in force, one beside the other
	rng   *rand.Rand
	last  time.Time // when the last frame arrives
	order uint64
}

// Attach connects a device, and forwards its frames until it is closed. The
// switch closes it.
func (s *Switch) Attach(name string, mac MAC, device Frames) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[name] != nil || s.macs[mac] != nil || s.closed {
		return fmt.Errorf("%w %s (%x) is there, or the switch is closed", ErrPort, name, mac)
	}
	p := &port{name: name, device: device, wake: make(chan struct{}, 1)}
	for other := range s.ports {
		s.addPathLocked(other, name)
		s.addPathLocked(name, other)
	}
	s.ports[name], s.macs[mac] = p, p
	s.wg.Go(func() { s.read(p) })
	s.wg.Go(func() { s.deliver(p) })
	return nil
}

func (s *Switch) addPathLocked(from, to string) {
	var key uint64 = 14695981039346656037 // FNV-1a
	for _, b := range []byte(from + "\x00" + to) {
		key = (key ^ uint64(b)) * 1099511628211
	}
	s.paths[Way{from, to}] = &path{rng: rand.New(rand.NewPCG(s.seed, key))}
}

// Apply puts a rule in force on ways, beside earlier rules, until heal is
// called. Frames that are on their way arrive as they would have; a cut loses
// them.
func (s *Switch) Apply(r Rule, ways ...Way) (heal func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, way := range ways {
		if s.paths[way] == nil {
			return nil, fmt.Errorf("%w: no way from %s to %s", ErrPort, way.From, way.To)
		}
	}
	for _, way := range ways {
		p := s.paths[way]
		p.rules = append(p.rules, &r)
		if r.Cut {
			s.ports[way.To].drop(way.From)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, way := range ways {
			p := s.paths[way]
			p.rules = slices.DeleteFunc(p.rules, func(other *Rule) bool { return other == &r })
		}
	}, nil
}

// Counts returns the frames so far.
func (s *Switch) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Close closes all devices and waits for the switch to end.
func (s *Switch) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	ports := slices.Collect(maps.Values(s.ports))
	s.mu.Unlock()
	var errs []error
	for _, p := range ports {
		errs = append(errs, p.device.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

func (s *Switch) read(p *port) {
	buffer := make([]byte, maxFrame)
	for {
		n, err := p.device.Read(buffer)
		if err != nil {
			return
		}
		if n >= headerBytes {
			s.forward(p, buffer[:n])
		}
	}
}

// forward sends a frame on its ways.
func (s *Switch) forward(from *port, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := MAC(frame[:6])
	if to[0]&1 == 0 {
		if p := s.macs[to]; p != nil && p != from {
			s.passLocked(from, p, frame)
		}
		return
	}
	if to != broadcast {
		return // multicast has no use here
	}
	for _, name := range slices.Sorted(maps.Keys(s.ports)) {
		if p := s.ports[name]; p != from {
			s.passLocked(from, p, frame)
		}
	}
}

// passLocked treats a frame by its rule and puts it down for delivery.
func (s *Switch) passLocked(from, to *port, frame []byte) {
	way := s.paths[Way{from.name, to.name}]
	lost, spread := way.rng.Float64(), way.rng.Float64() // of each frame, whatever the rule
	var r Rule
	for _, one := range way.rules {
		r = r.and(*one)
	}
	if r.Cut || lost < r.Loss || to.bytes+len(frame) > maxWaiting {
		s.counts.Lost++
		return
	}
	now := time.Now()
	at := now.Add(r.Delay + time.Duration(spread*float64(r.Jitter)))
	if at.Before(way.last) {
		at = way.last
	}
	way.last = at
	way.order++
	s.counts.Forwarded++
	if at.After(now) {
		s.counts.Delayed++
	}
	to.put(arrival{at: at, order: way.order, from: from.name, frame: slices.Clone(frame)})
}

// deliver writes the frames of a port when they are due.
func (s *Switch) deliver(p *port) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		due, next := p.take(time.Now())
		s.mu.Unlock()
		for _, a := range due {
			if _, err := p.device.Write(a.frame); errors.Is(err, io.ErrClosedPipe) {
				return
			} // a host whose device is not up loses its frames
		}
		timer.Reset(next)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-s.done:
			return
		}
	}
}
