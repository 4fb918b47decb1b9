package router

import (
	"io"
	"net/netip"
	"slices"
	"sync"
)

// bodyFloor is how much of each body may be in memory without being counted.
const bodyFloor = 4 << 10

// clientShare is the part of a router's budget that one client may use: a quarter.
const clientShare = 4

// budget bounds the bytes of all bodies in memory, and those of each client.
type budget struct {
	limit int64
	share int64 // of one client

	mu      sync.Mutex // guards what follows
	used    int64
	clients map[netip.Addr]int64 // that use some
}

func (b *budget) take(client netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.clients[client]+n > b.share {
		return false
	}
	if b.clients == nil {
		b.clients = make(map[netip.Addr]int64)
	}
	b.used += n
	b.clients[client] += n
	return true
}

func (b *budget) give(client netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.clients[client] -= n; b.clients[client] == 0 {
		delete(b.clients, client)
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Client returns whom the budget counts a connection from that address for:
// an IPv4 address, or the /64 network of an IPv6 one.
func clientOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	client := at.Addr().Unmap()
	if client.Is6() {
		if network, err := client.Prefix(64); err == nil {
			client = network.Addr()
		}
	}
	return client
}

// reservation is what the body of one request takes of a budget. It implements
// [link.Memory] and [h2.Memory].
type reservation struct {
	budget *budget
	remote string // the client's address

	mu    sync.Mutex
	taken int64
	over  bool // nothing more may be taken
}

// Reserve reports whether the first n bytes of the body may be in memory.
func (r *reservation) Reserve(n int) bool {
	if n <= bodyFloor {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := int64(n) - r.taken
	if r.over || more > 0 && !r.budget.take(clientOf(r.remote), more) {
		return false
	}
	r.taken = max(r.taken, int64(n))
	return true
}

// release ends the use of what was reserved.
func (r *reservation) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken > 0 {
		r.budget.give(clientOf(r.remote), r.taken)
		r.taken = 0
	}
}

// end is release for a body that may still be read, of which nothing more is kept.
func (r *reservation) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.release()
}

// gather reads a body of n bytes, as far as it may be in memory: whole says
// whether that is all of it.
func (r *reservation) gather(body io.Reader, n int64) (data []byte, whole bool, err error) {
	for int64(len(data)) < n {
		room := int(min(n, max(bodyFloor, 16*int64(len(data)))))
		if !r.Reserve(room) {
			return data, false, nil
		}
		data = slices.Grow(data, room-len(data))
		read, err := io.ReadAtLeast(body, data[len(data):room], 1)
		data = data[:len(data)+read]
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return data, false, err
		}
	}
	return data, true, nil
}
