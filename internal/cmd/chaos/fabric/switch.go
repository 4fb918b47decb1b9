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
// forwards them all at once. A frame passes what is set in this order.
type Rule struct {
	Cut       bool          // none passes
	Loss      float64       // share of the frames that are lost
	Duplicate float64       // share that come twice
	Rate      int           // bytes a second; 0 for no limit
	Queue     int           // bytes that wait for Rate, the others are lost; 0 is 64 KiB
	Delay     time.Duration // of each frame
	Jitter    time.Duration // up to this much more
	Reorder   float64       // share that is held back by up to twice Jitter, 10 ms at least, so that others overtake it
}

// Frames is a port's device: Read returns one frame, Write takes one.
type Frames = io.ReadWriteCloser

// Counts are the frames that a switch has seen.
type Counts struct{ Forwarded, Lost, Duplicated, Delayed int64 }

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
	paths  map[[2]string]*path
	counts Counts
	closed bool
}

// ErrPort is returned for a port that is not there, or is there twice.
var ErrPort = errors.New("fabric: port")

// NewSwitch returns a switch that decides by the seed what is lost, held back
// and duplicated: the n-th frame from one port to another fares alike each
// time, under one rule.
func NewSwitch(seed uint64) *Switch {
	return &Switch{seed: seed, done: make(chan struct{}), ports: make(map[string]*port), macs: make(map[MAC]*port), paths: make(map[[2]string]*path)}
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
	rule  Rule
	rng   *rand.Rand
	free  time.Time // when the frames before have passed Rate
	last  time.Time // when the last frame arrives that is not held back
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
	s.paths[[2]string{from, to}] = &path{rng: rand.New(rand.NewPCG(s.seed, key))}
}

// Set puts a rule in force for frames from one port to another, instead of the
// one before. Frames that are on their way arrive as they would have; a cut
// loses them.
func (s *Switch) Set(from, to string, r Rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.paths[[2]string{from, to}]
	if p == nil {
		return fmt.Errorf("%w: no way from %s to %s", ErrPort, from, to)
	}
	p.rule = r
	if r.Cut {
		s.ports[to].drop(from)
	}
	return nil
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
	way := s.paths[[2]string{from.name, to.name}]
	lost, twice, late, spread := way.rng.Float64(), way.rng.Float64(), way.rng.Float64(), way.rng.Float64() // of each frame, whatever the rule
	r := way.rule
	now := time.Now()
	if r.Cut || lost < r.Loss {
		s.counts.Lost++
		return
	}
	at := now
	if r.Rate > 0 {
		queue := r.Queue
		if queue == 0 {
			queue = 64 << 10
		}
		start := at
		if way.free.After(start) {
			start = way.free
		}
		if int(start.Sub(now).Seconds()*float64(r.Rate))+len(frame) > queue {
			s.counts.Lost++
			return
		}
		at = start.Add(time.Duration(float64(len(frame)) / float64(r.Rate) * float64(time.Second)))
		way.free = at
	}
	at = at.Add(r.Delay)
	if late < r.Reorder {
		at = at.Add(max(time.Duration(spread*float64(2*r.Jitter)), 10*time.Millisecond))
	} else {
		at = at.Add(time.Duration(spread * float64(r.Jitter)))
		if at.Before(way.last) {
			at = way.last
		}
		way.last = at
	}
	copies := 1
	if twice < r.Duplicate {
		copies = 2
		s.counts.Duplicated++
	}
	if at.After(now) {
		s.counts.Delayed++
	}
	for range copies {
		if to.bytes+len(frame) > maxWaiting {
			s.counts.Lost++
			return
		}
		s.counts.Forwarded++
		way.order++
		to.put(arrival{at: at, order: way.order, from: from.name, frame: slices.Clone(frame)})
	}
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
