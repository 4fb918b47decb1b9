//go:build linux

// Package rawio reads and writes sockets that do not block, without telling
// the scheduler, which halves the cost of a call here.
package rawio

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read is read(2).
func Read(fd int, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

// Write is write(2).
func Write(fd int, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

func call(number uintptr, fd int, b []byte) (int, error) {
	n, _, err := syscall.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if err != 0 {
		return 0, err
	}
	return int(n), nil
}

// Poll waits for sockets. Make one with [NewPoll]; it is for one goroutine.
type Poll struct {
	epoll  int
	timer  int // for waits that end between two of epoll's milliseconds
	events [256]unix.EpollEvent
}

// NewPoll returns one without sockets, which must be closed.
func NewPoll() (*Poll, error) {
	p := &Poll{}
	var failed [2]error
	p.epoll, failed[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.timer, failed[1] = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	err := errors.Join(failed[:]...)
	if err == nil {
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1})
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

// Close leaves the sockets open. Nothing can be watched any more.
func (p *Poll) Close() {
	for _, fd := range []*int{&p.epoll, &p.timer} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// Watch is epoll_ctl(2) for a socket.
func (p *Poll) Watch(how, fd int, events uint32) error {
	return unix.EpollCtl(p.epoll, how, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// Wait waits for d at most, or for as long as it takes if d is negative. It returns which
// sockets are ready; the file descriptor -1 is none. The next call overwrites that.
func (p *Poll) Wait(d time.Duration) ([]unix.EpollEvent, error) {
	timeout := int(d / time.Millisecond)
	switch {
	case d < 0:
		timeout = -1
	case d > 0 && timeout == 0:
		if err := unix.TimerfdSettime(p.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil); err != nil {
			return nil, fmt.Errorf("timerfd: %w", err)
		}
		timeout = 1
	}
	n, err := unix.EpollWait(p.epoll, p.events[:], timeout)
	if err != nil && err != unix.EINTR {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p.events[:max(n, 0)], nil
}

// Dial connects to an IPv4 address in that time, and watches for what comes.
func (p *Poll) Dial(to netip.AddrPort, patience time.Duration) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	bound := unix.NsecToTimeval(int64(patience))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &bound),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
	)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err == unix.EINTR { // it goes on, and cannot be called again
		err = connected(fd, patience)
	}
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), p.Watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connecting: %w", err)
	}
	return fd, nil
}

// connected waits until a connection is there.
func connected(fd int, patience time.Duration) error {
	for end := time.Now().Add(patience); ; {
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

// Receive is Read, but for returning 0 where nothing has come yet, and an error at the end.
func Receive(fd int, b []byte) (int, error) {
	n, err := Read(fd, b)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, nil
	case err == nil && n == 0:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
