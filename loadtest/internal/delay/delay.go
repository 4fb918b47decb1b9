//go:build linux

// Package delay makes a network with a round trip time out of the loopback: it
// forwards TCP connections and holds what they carry back for half of that time
// each way. Connections themselves are made at once.
//
// One thread serves all connections. What is due within the same [grain] is
// written together, so that a busy network costs few system calls.
package delay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// grain is what the times at which something is due are rounded to.
const grain = 50 * time.Microsecond

// maxOnWay bounds the bytes on their way in one direction of a connection. The
// sender is not read beyond it.
const maxOnWay = 1 << 20

// Network is a network. Make one with [New].
type Network struct {
	oneWay time.Duration
	poll   *rawio.Poll
	wake   int // eventfd: there are tasks
	tid    atomic.Int64
	done   chan struct{}

	mu     sync.Mutex
	tasks  []func()
	closed bool

	// Of the thread alone:

	start     time.Time
	listeners map[int32]*listener
	ends      map[int32]*end
	parcels   []parcel // in the order in which they are due
	first     int      // of parcels
	dirty     []*end   // with something to write
	in        []byte
	stopped   bool
}

// listener is an address whose connections are forwarded.
type listener struct {
	fd int
	to unix.SockaddrInet4
}

// end is one of the two ends of a forwarded connection.
type end struct {
	fd      int // -1: closed
	peer    *end
	out     []byte // due, and not written yet
	dirty   bool   // in Network.dirty
	eof     bool   // nothing more comes after out
	ended   bool   // that was told to the socket
	onWay   int    // bytes from here on their way, and waiting in peer.out
	reading bool
	read    bool // to its end
	writing bool // waits until it can be written
}

// parcel is something on its way.
type parcel struct {
	due  time.Duration
	to   *end
	data []byte // nil: the end of the connection
}

// New returns a network with a round trip time. It must be closed.
func New(roundTrip time.Duration) (*Network, error) {
	if roundTrip <= 0 {
		return nil, fmt.Errorf("delay: a round trip of %v", roundTrip)
	}
	n := &Network{
		oneWay: roundTrip / 2, done: make(chan struct{}), start: time.Now(), listeners: make(map[int32]*listener), ends: make(map[int32]*end), in: make([]byte, 256<<10),
	}
	var err error
	if n.poll, err = rawio.NewPoll(); err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	if n.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err == nil {
		err = n.poll.Watch(unix.EPOLL_CTL_ADD, n.wake, unix.EPOLLIN)
	}
	if err != nil {
		n.closeOwn()
		return nil, fmt.Errorf("delay: %w", err)
	}
	ready := make(chan struct{})
	go n.serve(ready)
	<-ready
	return n, nil
}

func (n *Network) closeOwn() {
	n.poll.Close()
	unix.Close(n.wake)
	n.wake = -1
}

// do runs a task on the thread and waits for it; false if the network is closed.
func (n *Network) do(task func()) bool {
	ran := make(chan struct{})
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return false
	}
	n.tasks = append(n.tasks, func() { task(); close(ran) })
	_, _ = unix.Write(n.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // cannot fail before the counter is full
	n.mu.Unlock()
	<-ran
	return true
}

var errClosed = errors.New("delay: the network is closed")

// Forward returns an address whose connections are forwarded to ip:port, an
// IPv4 address that need not be listened on yet.
func (n *Network) Forward(to string) (addr string, err error) {
	target, err := netip.ParseAddrPort(to)
	if err != nil || !target.Addr().Is4() {
		return "", fmt.Errorf("delay: %q is no IPv4 address with a port", to)
	}
	addr, err = proc.FreeAddr()
	if err != nil {
		return "", err
	}
	from := netip.MustParseAddrPort(addr)
	ok := n.do(func() { err = n.listen(from, target) })
	if !ok {
		err = errClosed
	}
	return addr, err
}

func (n *Network) listen(from, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(from.Port()), Addr: from.Addr().As4()}),
		unix.Listen(fd, 4096),
		n.poll.Watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN),
	)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("delay: listening on %v: %w", from, err)
	}
	n.listeners[int32(fd)] = &listener{fd, unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}}
	return nil
}

// Remove refuses further connections to an address that Forward returned, as
// those to a process that has ended are refused. Those that there are go on.
func (n *Network) Remove(addr string) {
	_, port, _ := net.SplitHostPort(addr)
	n.do(func() {
		for key, l := range n.listeners {
			own, err := unix.Getsockname(l.fd)
			if a, ok := own.(*unix.SockaddrInet4); err == nil && ok && fmt.Sprint(a.Port) == port {
				unix.Close(l.fd)
				delete(n.listeners, key)
			}
		}
	})
}

// CPU returns the CPU time that the network's thread has used.
func (n *Network) CPU() time.Duration { return proc.ThreadTime(int(n.tid.Load())) }

// Close ends all connections.
func (n *Network) Close() {
	n.do(func() { n.stopped = true })
	<-n.done
}

// serve is the thread.
func (n *Network) serve(ready chan<- struct{}) {
	runtime.LockOSThread()
	defer close(n.done)
	n.tid.Store(int64(unix.Gettid()))
	close(ready)
	for !n.stopped {
		ready, err := n.poll.Wait(n.until())
		if err != nil {
			break
		}
		n.deliver() // what is due is late already; what has come is not due yet
		for _, e := range ready {
			n.handle(e)
		}
		n.deliver()
	}
	for _, l := range n.listeners {
		unix.Close(l.fd)
	}
	for _, e := range n.ends {
		unix.Close(e.fd)
	}
	clear(n.listeners)
	clear(n.ends)
	n.mu.Lock()
	n.closed = true
	n.closeOwn()
	left := n.tasks
	n.mu.Unlock()
	for _, task := range left {
		task() // finds nothing, and can watch nothing
	}
}

func (n *Network) now() time.Duration { return time.Since(n.start) }

// until returns for how long no parcel is due; -1 if there is none.
func (n *Network) until() time.Duration {
	if n.first == len(n.parcels) {
		return -1
	}
	return max(0, n.parcels[n.first].due-n.now())
}

func (n *Network) handle(e unix.EpollEvent) {
	if int(e.Fd) == n.wake {
		_, _ = rawio.Read(n.wake, n.in[:8])
		n.mu.Lock()
		tasks := n.tasks
		n.tasks = nil
		n.mu.Unlock()
		for _, task := range tasks {
			task()
		}
		return
	}
	if l := n.listeners[e.Fd]; l != nil {
		n.accept(l)
		return
	}
	k := n.ends[e.Fd]
	if k == nil {
		return
	}
	switch {
	case e.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0:
	case k.reading:
		n.receive(k)
	case e.Events&unix.EPOLLERR != 0:
		n.abort(k)
	case e.Events&unix.EPOLLHUP != 0:
		_ = n.poll.Watch(unix.EPOLL_CTL_DEL, k.fd, 0) // else it is told again and again
	}
	if e.Events&(unix.EPOLLOUT|unix.EPOLLERR) != 0 && k.fd >= 0 && k.writing {
		n.flush(k)
	}
}
