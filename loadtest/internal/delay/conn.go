//go:build linux

package delay

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

// accept forwards the connections that have come.
func (n *Network) accept(l *listener) {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // no more, or one that has gone
		}
		if err := n.connect(fd, &l.to); err != nil {
			reset(fd)
		}
	}
}

// connect connects an accepted connection to its target.
func (n *Network) connect(fd int, to *unix.SockaddrInet4) error {
	onward, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(onward, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
	)
	if err == nil {
		if err = unix.Connect(onward, to); err == unix.EINPROGRESS {
			err = nil
		}
	}
	if err == nil {
		err = errors.Join(n.poll.Watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN), n.poll.Watch(unix.EPOLL_CTL_ADD, onward, unix.EPOLLIN))
	}
	if err != nil {
		unix.Close(onward)
		return err
	}
	a, b := &end{fd: fd, reading: true}, &end{fd: onward, reading: true}
	a.peer, b.peer = b, a
	n.ends[int32(fd)], n.ends[int32(onward)] = a, b
	return nil
}

// reset closes a connection so that its other side sees that it is broken.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // else it ends in an orderly way
	unix.Close(fd)
}

// receive sends what has come at an end on its way.
func (n *Network) receive(k *end) {
	count, err := rawio.Read(k.fd, n.in)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil:
		n.abort(k)
		return
	case count == 0:
		k.reading, k.read = false, true
		n.rewatch(k)
		n.send(k.peer, nil)
		return
	}
	k.onWay += count
	n.send(k.peer, append([]byte(nil), n.in[:count]...))
	if k.onWay >= maxOnWay {
		k.reading = false
		n.rewatch(k)
	}
}

func (n *Network) send(to *end, data []byte) {
	due := (n.now() + n.oneWay + grain/2) / grain * grain
	n.parcels = append(n.parcels, parcel{due, to, data})
}

// deliver writes what is due, all that is for one end at once.
func (n *Network) deliver() {
	if n.first == len(n.parcels) {
		return
	}
	now := n.now()
	for n.first < len(n.parcels) && n.parcels[n.first].due <= now {
		p := &n.parcels[n.first]
		n.first++
		if p.data == nil {
			p.to.eof = true
		} else {
			p.to.out = append(p.to.out, p.data...)
		}
		if !p.to.dirty {
			p.to.dirty = true
			n.dirty = append(n.dirty, p.to)
		}
		*p = parcel{}
	}
	for _, k := range n.dirty {
		k.dirty = false
		if k.fd >= 0 && !k.writing {
			n.flush(k)
		}
	}
	n.dirty = n.dirty[:0]
	if n.first > len(n.parcels)/2 {
		n.parcels = append(n.parcels[:0], n.parcels[n.first:]...)
		n.first = 0
	}
}

// flush writes what waits at an end, as far as it goes.
func (n *Network) flush(k *end) {
	for len(k.out) > 0 {
		count, err := rawio.Write(k.fd, k.out)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN || err == unix.ENOTCONN {
			n.await(k, true)
			return
		}
		if err != nil {
			n.abort(k)
			return
		}
		k.out = k.out[:copy(k.out, k.out[count:])]
		if from := k.peer; from.fd >= 0 {
			from.onWay -= count
			if !from.reading && !from.read && from.onWay < maxOnWay/2 {
				from.reading = true
				n.rewatch(from)
			}
		}
	}
	n.await(k, false)
	if k.eof && !k.ended {
		k.ended = true
		_ = unix.Shutdown(k.fd, unix.SHUT_WR) // fails if it is broken, which shows elsewhere
		if k.peer.ended {
			n.drop(k)
			n.drop(k.peer)
		}
	}
}

// await waits until an end can be written, or no longer.
func (n *Network) await(k *end, writing bool) {
	if k.writing != writing {
		k.writing = writing
		n.rewatch(k)
	}
}

func (n *Network) rewatch(k *end) {
	if k.fd < 0 {
		return
	}
	var events uint32
	if k.reading {
		events |= unix.EPOLLIN
	}
	if k.writing {
		events |= unix.EPOLLOUT
	}
	if err := n.poll.Watch(unix.EPOLL_CTL_MOD, k.fd, events); err == unix.ENOENT && events != 0 {
		_ = n.poll.Watch(unix.EPOLL_CTL_ADD, k.fd, events) // what else can fail shows in the connection
	}
}

// abort breaks a connection whose one end is broken.
func (n *Network) abort(k *end) {
	n.drop(k)
	if p := k.peer; p.fd >= 0 {
		delete(n.ends, int32(p.fd))
		reset(p.fd)
		p.fd = -1
	}
}

func (n *Network) drop(k *end) {
	if k.fd >= 0 {
		delete(n.ends, int32(k.fd))
		unix.Close(k.fd)
		k.fd = -1
	}
}
