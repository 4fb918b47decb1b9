package gossip

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network is a network in memory, for all tests of this package. It loses
// packets, cuts links and comes and goes as a test wants, and it works in a
// testing/synctest bubble, where minutes of an outage pass in no time. It
// connects the transports that were made by its Listen. Its methods may be
// called by any number of goroutines.
type Network struct {
	mu    sync.Mutex
	rand  *rand.Rand
	hosts map[string]*Transport // by address
	loss  float64
	cuts  map[link]bool
	group map[string]int // side of a partition; none if empty
}

type link struct{ from, to string }

// NewNetwork returns a network without faults. The seed decides which packets
// get lost later.
func NewNetwork(seed uint64) *Network {
	return &Network{
		rand:  rand.New(rand.NewPCG(seed, 0)),
		hosts: make(map[string]*Transport),
		cuts:  make(map[link]bool),
	}
}

// Listen returns a transport at addr, an IP address and port such as
// "10.0.0.1:7946". It panics if addr is malformed or in use.
func (n *Network) Listen(addr string) *Transport {
	at := netip.MustParseAddrPort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[addr] != nil {
		panic("address in use: " + addr)
	}
	t := &Transport{
		net:     n,
		addr:    net.UDPAddrFromAddrPort(at),
		packets: make(chan *memberlist.Packet, 1024),
		streams: make(chan net.Conn, 128),
		open:    make(map[*conn]bool),
	}
	n.hosts[addr] = t
	return t
}

// SetLoss sets the share of packets, from 0 to 1, that get lost. A stream
// loses none, but its data then takes longer, as TCP's does.
func (n *Network) SetLoss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = share
}

// Partition splits the network: only addresses of one group reach each other.
// Those that are in no group form another.
func (n *Network) Partition(groups ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = make(map[string]int)
	for i, addrs := range groups {
		for _, addr := range addrs {
			n.group[addr] = i + 1
		}
	}
}

// Cut lets nothing pass from one address to another; the way back stays open.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link{from, to}] = true
}

// Heal ends all partitions and cuts.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = nil
	clear(n.cuts)
}

// passes reports whether data gets from one address to another, but for loss.
// It needs n.mu.
func (n *Network) passes(from, to string) bool {
	return n.group[from] == n.group[to] && !n.cuts[link{from, to}]
}

// delays returns how long data takes that is sent again, after timeout, until
// it is not lost; ok is false if it does not get through in a few seconds.
func (n *Network) delays(from, to string, timeout time.Duration) (d time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.passes(from, to) || n.loss >= 1 {
		return 0, false
	}
	for n.rand.Float64() < n.loss {
		d += timeout
		timeout *= 2
	}
	return d, d < 4*time.Second
}

// Transport is one address of a Network. It is a memberlist.Transport.
type Transport struct {
	net     *Network
	addr    *net.UDPAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	open    map[*conn]bool // net.mu protects it
}

// FinalAdvertiseAddr returns the transport's address, whatever was asked for.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.IP, t.addr.Port, nil
}

// WriteTo sends a packet. It gets lost where a cut, a partition, loss or a full
// receiver is in its way, or nobody listens.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.hosts[addr]
	if to == nil || n.hosts[t.addr.String()] != t || !n.passes(t.addr.String(), addr) || n.rand.Float64() < n.loss {
		return now, nil
	}
	select {
	case to.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: t.addr, Timestamp: now}:
	default:
	}
	return now, nil
}

// PacketCh returns the packets that came in.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the streams that came in.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream. It fails at once where nobody listens, and after
// timeout where a cut or loss is in its way.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	self := t.addr.String()
	there, ok := t.net.delays(self, addr, time.Second)
	back, okBack := t.net.delays(addr, self, time.Second)
	if !ok || !okBack || there+back >= timeout {
		time.Sleep(timeout)
		return nil, t.dialError("i/o timeout")
	}
	time.Sleep(there + back)

	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.hosts[addr]
	if to == nil || n.hosts[self] != t {
		return nil, t.dialError("connection refused")
	}
	mine, theirs := newPair(n, t, to)
	select {
	case to.streams <- theirs:
	default:
		return nil, t.dialError("connection refused")
	}
	t.open[mine], to.open[theirs] = true, true
	return mine, nil
}

func (t *Transport) dialError(text string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Source: t.addr, Err: fmt.Errorf("%s", text)}
}

// Shutdown frees the address and breaks the transport's streams.
func (t *Transport) Shutdown() error {
	n := t.net
	n.mu.Lock()
	if n.hosts[t.addr.String()] == t {
		delete(n.hosts, t.addr.String())
	}
	open := t.open
	t.open = make(map[*conn]bool)
	n.mu.Unlock()
	for c := range open {
		c.Close()
	}
	return nil
}
