package appwork

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is a connection that the supervisor keeps too. Closing one of two duplicates ends nothing, so
// Close shuts the connection down, which makes the supervisor drop its own.
type conn struct{ socket }

type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

func (c conn) Close() error {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) }) // or it has ended
	}
	return c.socket.Close()
}

// share sends a duplicate of c to the supervisor. It never waits: the supervisor may be stopped.
func share(c net.Conn, supervisor *os.File) (net.Conn, error) {
	s, ok := c.(socket)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = syscall.Sendmsg(int(supervisor.Fd()), []byte{0}, syscall.UnixRights(int(fd)), nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	})
	return conn{s}, errors.Join(err, failed)
}

// Keeper keeps duplicates of a sidecar's connections to its app. One goroutine, run, owns them.
type Keeper struct {
	Sidecar *os.File // for the sidecar's process alone: close it here once that has begun

	grace   time.Duration
	ended   chan struct{} // closed when the app has closed all connections since the sidecar's death
	sidecar int           // socket from the sidecar, over which connections come
	poll    int           // epoll
	conns   map[int]struct{}
}

// NewKeeper returns a Keeper for a sidecar that is about to start. grace is how long after its death
// the app may continue; nothing is kept for longer.
func NewKeeper(grace time.Duration) (*Keeper, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err == nil {
		err = watch(poll, syscall.EPOLL_CTL_ADD, pair[0], syscall.EPOLLIN)
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Close(pair[0]), syscall.Close(pair[1]))
	}
	k := &Keeper{Sidecar: os.NewFile(uintptr(pair[1]), "supervisor"), grace: grace, ended: make(chan struct{}), sidecar: pair[0], poll: poll, conns: make(map[int]struct{})}
	go k.run() // until grace after the sidecar's end
	return k, nil
}

// Ended returns a channel that is closed when the sidecar has died and the app has ended all that the
// sidecar had counted, running; nil if the connections cannot prove that.
func (k *Keeper) Ended(running int64) <-chan struct{} {
	if running >= Unproved {
		return nil
	}
	return k.ended
}

func watch(poll, op, fd int, events uint32) error {
	return syscall.EpollCtl(poll, op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
}

// run keeps connections until the sidecar has died. It then half-closes them, as the sidecar does
// with a request that it gives up, and waits until the app has closed them. While the sidecar lives,
// run notices only the ends of connections, and reads nothing.
func (k *Keeper) run() {
	defer syscall.Close(k.poll)
	var deadline time.Time // zero while the sidecar lives
	for events := make([]syscall.EpollEvent, 32); deadline.IsZero() || len(k.conns) > 0; {
		wait := -1
		if !deadline.IsZero() {
			if wait = int(time.Until(deadline) / time.Millisecond); wait <= 0 {
				for fd := range k.conns {
					k.drop(fd)
				}
				return
			}
		}
		n, err := syscall.EpollWait(k.poll, events, wait)
		if err != nil && err != syscall.EINTR {
			return
		}
		for _, e := range events[:max(n, 0)] {
			switch fd := int(e.Fd); {
			case fd == k.sidecar:
				if !k.receive() {
					deadline = time.Now().Add(k.grace)
					k.halfClose()
				}
			case deadline.IsZero() || k.hasEnded(fd):
				k.drop(fd)
			}
		}
	}
	close(k.ended)
}

// receive takes the next connection from the sidecar. It returns false when the sidecar has died.
func (k *Keeper) receive() bool {
	rights := make([]byte, syscall.CmsgSpace(4))
	sent, n, _, _, err := syscall.Recvmsg(k.sidecar, make([]byte, 1), rights, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return true
	case sent == 0 || err != nil:
		k.drop(k.sidecar)
		return false
	}
	fd := -1 // of a connection that did not arrive, since too many files are open: it never ends here, so nothing is proved
	if messages, _ := syscall.ParseSocketControlMessage(rights[:n]); len(messages) > 0 {
		if fds, _ := syscall.ParseUnixRights(&messages[0]); len(fds) > 0 {
			fd = fds[0]
		}
	}
	k.conns[fd] = struct{}{}
	_ = watch(k.poll, syscall.EPOLL_CTL_ADD, fd, syscall.EPOLLRDHUP) // without it the connection never ends here either
	return true
}

// halfClose tells the app that the sidecar has died.
func (k *Keeper) halfClose() {
	for fd := range k.conns {
		_ = syscall.Shutdown(fd, syscall.SHUT_WR) // or it has ended, as the next look shows
		_ = watch(k.poll, syscall.EPOLL_CTL_MOD, fd, syscall.EPOLLIN)
	}
}

// hasEnded drops what the app sends, and reports whether it has closed the connection.
func (k *Keeper) hasEnded(fd int) bool {
	n, _, err := syscall.Recvfrom(fd, make([]byte, 16<<10), syscall.MSG_DONTWAIT)
	return n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
}

// drop closes a duplicate. The sidecar may still have its own, so epoll would go on to report it.
func (k *Keeper) drop(fd int) {
	delete(k.conns, fd)
	_ = syscall.EpollCtl(k.poll, syscall.EPOLL_CTL_DEL, fd, nil)
	syscall.Close(fd)
}
