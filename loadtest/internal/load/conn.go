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
	s := new(socket)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		var duplicated error
		err = raw.Control(func(fd uintptr) { s.fd, duplicated = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, duplicated)
	}
	return s, err
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
	timer  int // for waits that end between two of epoll's milliseconds
	events [256]unix.EpollEvent
}

func newPoll() (*poll, error) {
	p := new(poll)
	var failed [2]error
	p.epoll, failed[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.timer, failed[1] = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	err := errors.Join(failed[:]...)
	if err == nil {
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1})
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

func (p *poll) close() {
	unix.Close(p.epoll)
	unix.Close(p.timer)
}

func (p *poll) watch(fd int) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// wait waits for d at most, and returns which sockets are ready; the file descriptor -1 is
// none. The next call overwrites that.
func (p *poll) wait(d time.Duration) ([]unix.EpollEvent, error) {
	timeout := int(d / time.Millisecond)
	if d > 0 && timeout == 0 {
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
