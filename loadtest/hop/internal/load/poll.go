//go:build linux

package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/rawio"
	"golang.org/x/sys/unix"
)

// conn is a connection that epoll watches.
type conn struct {
	fd      int
	session session
}

// poller drives all connections from one thread.
type poller struct {
	meter *meter
	addr  unix.SockaddrInet4
	epoll int
	timer int // wakes epoll when a request is due, with a rate
	conns []conn
	free  []int32 // conns that wait until one is
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
	p := &poller{meter: newMeter(newCourse(cfg)), in: make([]byte, readSize)}
	a, err := net.ResolveTCPAddr("tcp4", cfg.Addr)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	p.addr.Port = a.Port
	copy(p.addr.Addr[:], a.IP.To4())
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	defer p.close()
	if cfg.Rate > 0 {
		if err := p.startTimer(); err != nil {
			return Result{}, fmt.Errorf("load: %w", err)
		}
	}
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
		p.conns = append(p.conns, conn{fd: -1})
		if err := p.connect(len(p.conns) - 1); err != nil {
			return err
		}
	}
	return nil
}

func (p *poller) connect(i int) error {
	c := &p.conns[i]
	var err error
	if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if err := unix.Connect(c.fd, &p.addr); err != nil {
		return fmt.Errorf("load: connecting to %s: %w", p.meter.course.cfg.Addr, err)
	}
	if err := errors.Join(
		unix.SetNonblock(c.fd, true),
		unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}),
	); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	c.session = newSession(p.meter)
	return p.begin(i)
}

// begin sends what a connection is to send first, or notes that it is free.
func (p *poller) begin(i int) error {
	c := &p.conns[i]
	out := c.session.begin(p.out[:0], nanoseconds())
	if c.session.busy() == 0 {
		p.free = append(p.free, int32(i))
	}
	return p.write(c.fd, out)
}

// timerEvent is what epoll says when the timer has run out.
const timerEvent = -1

func (p *poller) startTimer() (err error) {
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return err
	}
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: timerEvent})
}

// sendDue sends the requests that are due on connections that are free, and
// sets the timer for the next one.
func (p *poller) sendDue() error {
	for len(p.free) > 0 {
		left := p.meter.due - nanoseconds()
		if left > 0 {
			return unix.TimerfdSettime(p.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(left)}, nil)
		}
		last := len(p.free) - 1
		i := p.free[last]
		p.free = p.free[:last]
		if err := p.begin(int(i)); err != nil {
			return err
		}
		if p.meter.course.phase.Load() == ending {
			return nil
		}
	}
	return nil
}

func (p *poller) close() {
	for _, c := range p.conns {
		unix.Close(c.fd)
	}
	unix.Close(p.epoll)
	if p.timer > 0 {
		unix.Close(p.timer)
	}
}

// wait handles what has come, or returns after a tick.
func (p *poller) wait() error {
	if p.timer > 0 {
		if err := p.sendDue(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	var events [256]unix.EpollEvent
	n, err := unix.EpollWait(p.epoll, events[:], int(tick.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("load: %w", err)
	}
	for _, e := range events[:max(n, 0)] {
		if e.Fd == timerEvent {
			continue
		}
		if err := p.receive(int(e.Fd)); err != nil {
			if err := p.replace(int(e.Fd), err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *poller) receive(i int) error {
	c := &p.conns[i]
	n, err := rawio.Read(c.fd, p.in)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	p.out, err = c.session.feed(p.in[:n], p.out[:0], nanoseconds())
	if err != nil {
		return err
	}
	if p.timer > 0 && c.session.busy() == 0 {
		p.free = append(p.free, int32(i))
	}
	return p.write(c.fd, p.out)
}

// replace counts the requests of a broken connection and opens another one.
func (p *poller) replace(i int, broke error) error {
	c := &p.conns[i]
	for range max(c.session.busy(), 1) {
		p.meter.fail(broke)
	}
	unix.Close(c.fd)
	if p.meter.failed > maxFailed {
		return fmt.Errorf("load: too many failures: %v", p.meter.failures)
	}
	return p.connect(i)
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
