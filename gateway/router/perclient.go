package router

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/wire/hop1"
)

// minPerClient is the least of what Config.MaxConnectionsPerClient is by default.
const minPerClient = 64

// tooMany is what a client reads on a connection without TLS that is one too many.
const tooMany = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 42\r\nConnection: close\r\n\r\ntoo many connections, close some and retry"

// admit serves a connection with p; read holds the bytes read before. A client with too many
// connections gets the new one only if others of it have been idle for at least a second; the
// longest idle ones are closed. Otherwise the new one is refused.
func (s *Server) admit(conn *conns.Admitted, read []byte, p protocol) {
	client := s.router.countedClient(conn.RemoteAddr().String())
	if !client.IsValid() || conn.Count(client) <= s.router.cfg.MaxConnectionsPerClient || s.makeRoomOf(client) {
		p.start(conn, read)
		return
	}
	s.router.counters.surplus.Add(1)
	s.router.log.Warn("a connection is closed: its client has too many (--max-connections-per-client)", "client", client)
	_, _ = io.WriteString(conn, p.refusal) // a new connection has room for it
	conn.Close()
}

// countedClient returns the client that a connection from the address remote counts for. It returns
// the zero Addr for trusted proxies and for this machine, which have no bound of their own.
func (rt *Router) countedClient(remote string) netip.Addr {
	client := conns.ClientOf(remote)
	if client.IsLoopback() || rt.trusts(remote) {
		return netip.Addr{}
	}
	return client
}

// onward counts the connections that requests have for themselves: to a worker for a tunnel,
// or to the server of requests without a key. Over HTTP/2 one client's connection may
// need hundreds of them.
type onward struct {
	mu      sync.Mutex         // guards what follows
	all     int                // in use
	room    int                // how many may be opened before idle ones have to be looked at
	clients map[netip.Addr]int // of clients that have a bound
}

// errOnwardFull: there are as many such connections as there may be, of all or of the client.
var errOnwardFull = errors.New("router: too many tunnels and requests without a key (--max-connections, --max-connections-per-client)")

// takeConnection counts one more connection for the client at that address, until release is called.
// Idle connections make room for it.
func (o *onward) takeConnection(rt *Router, remote string) (release func(), err error) {
	client := rt.countedClient(remote)
	bounded := client.IsValid()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all >= rt.cfg.MaxConnections || bounded && o.clients[client] >= rt.cfg.MaxConnectionsPerClient {
		return nil, errOnwardFull
	}
	o.all++
	if bounded {
		o.clients[client]++
	}
	if o.room--; o.room < 0 {
		o.room = rt.cfg.MaxConnections - o.all
		for p := range rt.pools {
			o.room -= p.Trim(o.room)
		}
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all--
		if !bounded {
			return
		}
		if o.clients[client]--; o.clients[client] == 0 {
			delete(o.clients, client)
		}
	}, nil
}

// pools yields the pools of such connections: one of several routes once for each.
func (rt *Router) pools(yield func(*hop1.Pool) bool) {
	for _, r := range rt.table.Load().routes {
		if r.upstream != nil && !yield(r.upstream) {
			return
		}
	}
	rt.workers.All(func(p *send.Peer) bool { return yield(&p.Plain) })
}

// makeRoomOf ends connections of the client that have been without a request for
// longest, and reports whether there were any. It looks once in a tick.
func (s *Server) makeRoomOf(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now.Load()
	if s.trimmed == now {
		return false
	}
	s.trimmed = now
	others := func(c conns.Idle) bool { return c.Client() != client }
	return conns.EndLongestIdle(slices.DeleteFunc(s.allLocked(), others), now) > 0
}
