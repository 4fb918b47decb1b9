//go:build linux

package load

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/rawio"
	"golang.org/x/sys/unix"
)

// conn is a connection that epoll watches.
type conn struct {
	fd      int // -1: none
	session session
}

// poller drives all connections from one thread.
type poller struct {
	poll  *rawio.Poll
	meter *meter
	addr  netip.AddrPort
	conns []*conn
	byFD  map[int32]*conn
	free  []*conn // conns that wait until a request is due, with a rate
	in    []byte
	out   []byte
}

const (
	readSize = 256 << 10
	tick     = 5 * time.Millisecond
	// crowd is how many connections are opened at once.
	crowd = 100
	// maxFailed is when a run is given up.
	maxFailed = 10_000
)

func runPolling(cfg Config, idle func(), release <-chan struct{}) (Result, error) {
	p := &poller{meter: newMeter(newCourse(cfg)), in: make([]byte, readSize), byFD: make(map[int32]*conn)}
	a, err := net.ResolveTCPAddr("tcp4", cfg.Addr)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	p.addr = a.AddrPort()
	if p.poll, err = rawio.NewPoll(); err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	defer p.close()
	if cfg.Time == 0 {
		if err := p.once(); err != nil {
			return Result{}, err
		}
		idle()
		<-release
		return p.meter.result(), nil
	}
	if err := p.open(cfg.Connections); err != nil {
		return Result{}, err
	}
	return p.measure(cfg)
}

// once opens the connections, a crowd at a time, and sends one request on each.
func (p *poller) once() error {
	p.meter.left = 0
	for left := p.meter.course.cfg.Connections; left > 0; {
		n := min(left, crowd)
		left -= n
		p.meter.left = n
		if err := p.open(n); err != nil {
			return err
		}
		if err := p.drain(time.Now().Add(drain)); err != nil {
			return err
		}
	}
	return nil
}

func (p *poller) measure(cfg Config) (Result, error) {
	c := p.meter.course
	for end := time.Now().Add(cfg.WarmUp); time.Now().Before(end); {
		if err := p.wait(); err != nil {
			return Result{}, err
		}
	}
	c.enter(measuring)
	answered := func() bool { return p.meter.requests+p.meter.failed > 0 }
	for end := c.began.Add(cfg.Time); !answered() && time.Since(c.began) < drain || time.Now().Before(end); {
		if err := p.wait(); err != nil {
			return Result{}, err
		}
	}
	c.enter(ending)
	if err := p.drain(time.Now().Add(drain)); err != nil {
		return Result{}, err
	}
	return p.meter.result(), nil
}

func (p *poller) drain(end time.Time) error {
	for time.Now().Before(end) {
		busy := 0
		for i := range p.conns {
			busy += p.conns[i].session.busy()
		}
		if busy == 0 {
			return nil
		}
		if err := p.wait(); err != nil {
			return err
		}
	}
	return errors.New("load: answers are missing at the end")
}

func (p *poller) open(n int) error {
	for range n {
		c := &conn{fd: -1}
		p.conns = append(p.conns, c)
		if err := p.connect(c); err != nil {
			return err
		}
	}
	return nil
}

func (p *poller) connect(c *conn) (err error) {
	if c.fd, err = p.poll.Dial(p.addr, drain); err != nil {
		return fmt.Errorf("load: %s: %w", p.meter.course.cfg.Addr, err)
	}
	p.byFD[int32(c.fd)] = c
	c.session = newSession(p.meter)
	return p.begin(c)
}

// begin sends what a connection is to send first, or notes that it is free.
func (p *poller) begin(c *conn) error {
	out := c.session.begin(p.out[:0], nanoseconds())
	if c.session.busy() == 0 {
		p.free = append(p.free, c)
	}
	return p.write(c.fd, out)
}

// sendDue sends the requests that are due on connections that are free. It returns for
// how long there is none to send.
func (p *poller) sendDue() (time.Duration, error) {
	for len(p.free) > 0 && p.meter.course.phase.Load() != ending {
		if left := time.Duration(p.meter.due - nanoseconds()); left > 0 {
			return min(left, tick), nil
		}
		last := len(p.free) - 1
		c := p.free[last]
		p.free = p.free[:last]
		if err := p.begin(c); err != nil {
			return 0, err
		}
	}
	return tick, nil
}

func (p *poller) close() {
	for _, c := range p.conns {
		unix.Close(c.fd)
	}
	p.poll.Close()
}

// wait handles what has come, or returns after a tick.
func (p *poller) wait() error {
	left := tick
	if p.meter.course.cfg.Rate > 0 {
		var err error
		if left, err = p.sendDue(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	ready, err := p.poll.Wait(left)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, e := range ready {
		c := p.byFD[e.Fd]
		if c == nil {
			continue
		}
		if err := p.receive(c); err != nil {
			if err := p.replace(c, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *poller) receive(c *conn) error {
	n, err := rawio.Receive(c.fd, p.in)
	if n == 0 || err != nil {
		return err
	}
	p.out, err = c.session.feed(p.in[:n], p.out[:0], nanoseconds())
	if err != nil {
		return err
	}
	if p.meter.course.cfg.Rate > 0 && c.session.busy() == 0 {
		p.free = append(p.free, c)
	}
	return p.write(c.fd, p.out)
}

// replace counts the requests of a broken connection and opens another one.
func (p *poller) replace(c *conn, broke error) error {
	for range max(c.session.busy(), 1) {
		p.meter.fail(broke)
	}
	delete(p.byFD, int32(c.fd))
	unix.Close(c.fd)
	if p.meter.failed > maxFailed {
		return fmt.Errorf("load: too many failures: %v", p.meter.failures)
	}
	return p.connect(c)
}

// write waits in the rare case that the socket takes nothing more.
func (p *poller) write(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := rawio.Write(fd, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000); err != nil && err != unix.EINTR {
				return err
			}
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}
