//go:build linux

package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// conn is a client with its connection.
type conn struct {
	course   *course
	number   int
	position int           // in the sequence of requests
	socket   *socket       // nil: not connected
	stream   io.ReadWriter // the socket, or TLS over it
	session  session
}

func (c *course) add(number int) *conn {
	k := &conn{course: c, number: number, position: number * sequenceLen / c.Clients}
	c.conns = append(c.conns, k)
	return k
}

func (k *conn) underWay() []time.Duration {
	if k.socket == nil {
		return nil
	}
	return k.session.underWay()
}

// connect opens a client's connection if there is none.
func (k *conn) connect() (err error) {
	if k.socket != nil {
		return nil
	}
	c := k.course
	if k.socket, err = dial(c.Addr); err != nil {
		return err
	}
	k.stream, k.session = k.socket, newSession(&c.Config, k)
	if c.TLS {
		secure := tls.Client(k.socket, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		k.socket.patient = true
		err = secure.Handshake()
		k.stream, k.socket.patient = secure, false
	}
	if err == nil {
		err = c.poll.watch(k.socket.fd)
	}
	if err != nil {
		k.hangUp()
		return err
	}
	c.byFD[int32(k.socket.fd)] = k
	return nil
}

func (k *conn) hangUp() {
	if k.socket != nil {
		delete(k.course.byFD, int32(k.socket.fd))
		unix.Close(k.socket.fd)
		k.socket = nil
	}
}

// flush writes what is to be sent.
func (k *conn) flush() error {
	out := k.session.unsent()
	if len(out) == 0 {
		return nil
	}
	_, err := k.stream.Write(out)
	return err
}

// receive takes what has come on a connection.
func (k *conn) receive() error {
	for more := true; more; more = k.course.TLS { // which may keep what has come
		n, err := k.stream.Read(k.course.in)
		if err == unix.EAGAIN {
			break
		}
		if err == nil {
			err = k.session.feed(k.course.in[:n])
		}
		if err != nil {
			return err
		}
	}
	return k.flush()
}

// connectTime bounds connecting.
const connectTime = time.Second

// socket reads and writes a connection without telling Go's scheduler, which halves
// the cost of a call here.
type socket struct {
	net.Conn // nil: TLS calls nothing of it but Read and Write
	fd       int
	patient  bool // Read waits until something comes
}

// dial connects, and takes the connection out of the scheduler's hands.
func dial(addr string) (*socket, error) {
	c, err := net.DialTimeout("tcp", addr, connectTime)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := new(socket)
	var duplicated error
	err = raw.Control(func(fd uintptr) { s.fd, duplicated = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, duplicated); err != nil {
		return nil, err
	}
	return s, nil
}

// Read returns the error EAGAIN, which TLS takes for a passing one, if nothing has come.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.call(syscall.SYS_READ, b)
	for err == unix.EAGAIN && s.patient {
		if err = s.await(unix.POLLIN); err == nil {
			n, err = s.call(syscall.SYS_READ, b)
		}
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write waits in the rare case that the socket takes nothing more.
func (s *socket) Write(b []byte) (done int, err error) {
	for done < len(b) && err == nil {
		var n int
		if n, err = s.call(syscall.SYS_WRITE, b[done:]); err == unix.EAGAIN {
			err = s.await(unix.POLLOUT)
		}
		done += n
	}
	return done, err
}

func (s *socket) call(number uintptr, b []byte) (int, error) {
	for {
		n, _, err := syscall.RawSyscall(number, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch err {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

// await waits for an event of the socket for a second.
func (s *socket) await(event int16) error {
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: event}}, 1000)
	if err == unix.EINTR {
		return nil
	}
	return err
}

// poll waits for sockets. Make one with newPoll.
type poll struct {
	epoll  int
	events [256]unix.EpollEvent
}

func newPoll() (*poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: epoll: %w", err)
	}
	return &poll{epoll: fd}, nil
}

func (p *poll) close() { unix.Close(p.epoll) }

func (p *poll) watch(fd int) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// wait waits for d at most, to the nanosecond (epoll_pwait2, Linux 5.11), and returns which sockets are ready.
// The next call overwrites that.
func (p *poll) wait(d time.Duration) ([]unix.EpollEvent, error) {
	timeout := unix.NsecToTimespec(int64(d))
	n, _, err := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch err {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("load: epoll: %w", err)
}
