//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/answer"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// poller waits for connections to become readable, and for a point in time.
type poller struct {
	epoll, timer int
	byFD         map[int32]*conn
	in           []byte
}

func (p *poller) openPoller() (err error) {
	p.byFD, p.in = make(map[int32]*conn), make([]byte, 64<<10)
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("load: epoll: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("load: timerfd: %w", err)
	}
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.timer, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.timer)})
}

func (c *course) open() error { return c.openPoller() }

func (c *course) close() {
	for _, k := range c.conns {
		k.close()
	}
	unix.Close(c.timer)
	unix.Close(c.epoll)
}

// wait handles what arrives, for as long as d at most.
func (c *course) wait(d time.Duration) error {
	timeout := int(d / time.Millisecond)
	if fine := d % time.Millisecond; timeout == 0 && fine > 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(fine))}
		if err := unix.TimerfdSettime(c.timer, 0, &spec, nil); err != nil {
			return fmt.Errorf("load: timerfd: %w", err)
		}
		timeout = 1
	}
	var events [256]unix.EpollEvent
	n, err := unix.EpollWait(c.epoll, events[:], timeout)
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("load: epoll: %w", err)
	}
	for _, e := range events[:max(n, 0)] {
		if int(e.Fd) == c.timer {
			_, _ = rawio.Read(c.timer, c.in[:8]) // only its being readable counts
			continue
		}
		if k := c.byFD[e.Fd]; k != nil && k.fd == int(e.Fd) {
			c.receive(k)
		}
	}
	return nil
}

// receive takes what has come on a connection.
func (c *course) receive(k *conn) {
	n, err := rawio.Read(k.fd, c.in)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err == nil && n == 0:
		err = io.ErrUnexpectedEOF
	}
	now := c.now()
	if err != nil {
		c.broken(k, now, err)
		return
	}
	whole, err := k.feed(c.in[:n])
	switch {
	case err != nil:
		c.broken(k, now, err)
	case whole:
		c.answered(k, now)
	}
}

// conn is a client with its connection, over which one request at a time goes.
type conn struct {
	number      int
	position    int // in the sequence of requests
	waiting     bool
	begun       time.Duration
	pausedUntil time.Duration // 0: not paused

	fd     int // -1: not connected
	forget func()
	answer answer.Reader
	body   []byte // its beginning
}

// connectTime bounds connecting.
const connectTime = time.Second

// connect opens the connection if there is none.
func (k *conn) connect(p *poller, addr string) error {
	if k.fd >= 0 {
		return nil
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	patience := unix.NsecToTimeval(int64(connectTime))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
	)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err == unix.EINTR { // it goes on, and cannot be called again
		err = connected(fd)
	}
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("connecting: %w", err)
	}
	k.fd, k.answer = fd, answer.Reader{}
	p.byFD[int32(fd)] = k
	k.forget = func() { delete(p.byFD, int32(fd)) }
	return nil
}

// connected waits until a connection is there.
func connected(fd int) error {
	for end := time.Now().Add(connectTime); ; {
		wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		switch n, err := unix.Poll(wait, int(max(0, time.Until(end)/time.Millisecond))); {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		default:
			failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if failed != 0 {
				err = syscall.Errno(failed)
			}
			return err
		}
	}
}

func (k *conn) close() {
	if k.fd >= 0 {
		k.forget()
		unix.Close(k.fd)
		k.fd = -1
	}
}

// write sends a request, which a socket without anything in it takes whole.
func (k *conn) write(b []byte) error {
	n, err := rawio.Write(k.fd, b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// maxBody bounds what is kept of an answer's body.
const maxBody = 256

// started returns when the critical section began; 0 if the answer does not
// say.
func (k *conn) started() time.Duration {
	_, rest, _ := bytes.Cut(k.body, []byte(Begun))
	var n int64
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return time.Duration(n)
}

// feed takes what has come, and reports whether an answer is whole.
func (k *conn) feed(in []byte) (whole bool, err error) {
	if !k.waiting {
		return false, answer.ErrUnasked
	}
	body, rest, whole, err := k.answer.Feed(in)
	if err == nil && len(rest) > 0 {
		err = answer.ErrUnasked
	}
	k.body = append(k.body, body[:min(len(body), maxBody-len(k.body))]...)
	return whole && err == nil, err
}
