//go:build linux

// Package delay makes a network with a round trip time out of the loopback: it
// forwards TCP connections and holds what they carry back for half of that time
// each way. Connections themselves are made at once.
package delay

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// A reader takes up to pieceSize bytes at a time from a connection. It does not read beyond
// maxOnWay pieces that are on their way.
const (
	pieceSize = 64 << 10
	maxOnWay  = 64
)

// Network is a network. Make one with [New]; nil is one that takes no time.
type Network struct {
	oneWay time.Duration
	pieces chan piece     // in the order in which they are due
	kept   sync.WaitGroup // those of open that still work

	mu     sync.Mutex
	open   map[string]io.Closer // listeners and connections, by their addresses
	closed bool
}

// piece is something on its way.
type piece struct {
	due  time.Time
	to   chan<- []byte // has room for it
	data []byte        // nil: the end of the connection
}

// New returns a network with a round trip time. It must be closed.
func New(roundTrip time.Duration) *Network {
	n := &Network{oneWay: roundTrip / 2, pieces: make(chan piece, 4096), open: make(map[string]io.Closer)}
	go n.deliver()
	return n
}

// deliver passes pieces on when they are due. It has a thread of its own, since Go's timers may be a millisecond late.
func (n *Network) deliver() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = proc.Punctual() // else pieces are some microseconds late
	for p := range n.pieces {
		for early := time.Until(p.due); early > 0; early = time.Until(p.due) {
			wait := unix.NsecToTimespec(int64(early))
			_ = unix.Nanosleep(&wait, nil) // a signal may end it early
		}
		p.to <- p.data
	}
}

var errClosed = errors.New("delay: the network is closed")

// keep makes Close close c, which has a name, and wait for n.kept; false if the network is closed already.
func (n *Network) keep(name string, c io.Closer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return false
	}
	n.open[name] = c
	n.kept.Add(1)
	return true
}

// Forward returns an address whose connections are forwarded to host:port, which need not be listened on yet.
func (n *Network) Forward(to string) (addr string, err error) {
	if n == nil {
		return to, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr = l.Addr().String()
	if !n.keep(addr, l) {
		return "", errClosed
	}
	go func() {
		defer n.kept.Done()
		for {
			near, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			go n.connect(near.(*net.TCPConn), to)
		}
	}()
	return addr, nil
}

// Remove refuses further connections to an address that Forward returned, as
// those to a process that has ended are refused. Those that there are go on.
func (n *Network) Remove(addr string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.open[addr]; l != nil {
		l.Close()
		delete(n.open, addr)
	}
}

// Close ends all connections.
func (n *Network) Close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	closed := n.closed
	n.closed = true
	for _, c := range n.open {
		c.Close()
	}
	n.mu.Unlock()
	if n.kept.Wait(); !closed {
		close(n.pieces)
	}
}

// pair is the two ends of a forwarded connection.
type pair struct{ near, far *net.TCPConn }

func (p *pair) Close() error { return errors.Join(p.near.Close(), p.far.Close()) }

// abort breaks the connection, so that both sides see that it is broken.
func (p *pair) abort() {
	_, _ = p.near.SetLinger(0), p.far.SetLinger(0) // else it ends in an orderly way
	_ = p.Close()
}

// connect connects an accepted connection to its target, and forwards both ways until both have ended.
func (n *Network) connect(near *net.TCPConn, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		_ = near.SetLinger(0)
		near.Close()
		return
	}
	p := &pair{near, far.(*net.TCPConn)}
	name := "from " + near.RemoteAddr().String()
	if !n.keep(name, p) {
		return
	}
	defer n.kept.Done()
	var ways sync.WaitGroup
	ways.Go(func() { n.forward(p, p.near, p.far) })
	ways.Go(func() { n.forward(p, p.far, p.near) })
	ways.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, name)
	p.Close()
}

// forward carries what comes at one end to the other one, until the sender ends.
func (n *Network) forward(p *pair, from, to *net.TCPConn) {
	onWay, due := make(chan struct{}, maxOnWay), make(chan []byte, maxOnWay)
	go func() { // its last piece ends the loop below
		in := make([]byte, pieceSize)
		for {
			onWay <- struct{}{}
			count, err := from.Read(in)
			if err == nil {
				n.pieces <- piece{time.Now().Add(n.oneWay), due, append([]byte(nil), in[:count]...)}
				continue
			}
			if err != io.EOF {
				p.abort()
			}
			n.pieces <- piece{time.Now().Add(n.oneWay), due, nil}
			return
		}
	}()
	for data := range due {
		if data == nil {
			_ = to.CloseWrite() // fails if it is broken
			return
		}
		if _, err := to.Write(data); err != nil {
			p.abort()
		}
		<-onWay
	}
}
