package router

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
)

// proxyHeaderSize bounds what a proxy says of a connection: the address, and what it
// may add in version 2 of the PROXY protocol.
const proxyHeaderSize = 4 << 10

// maxProxyLine is the size of the longest header in version 1.
const maxProxyLine = 107

// welcome serves a connection that was accepted with p, if its client may have
// one more. One of a peer that speaks the PROXY protocol is first asked for whom it
// is.
func (s *Server) welcome(conn *conns.Admitted, p protocol) {
	s.router.counters.accepted.Add(1)
	if !isFrom(s.router.cfg.ProxyProtocol, conn.RemoteAddr().String()) {
		s.admit(conn, nil, p)
		return
	}
	g := greeting{conn, s.now.Load()}
	if !s.keep(g) {
		conn.Close()
		return
	}
	go s.readProxyHeader(g, p)
}

// greeting is a connection whose PROXY header is read. It implements servedConn.
type greeting struct {
	*conns.Admitted
	began int64 // tick
}

func (g greeting) check(now int64, p phase) {
	if age := g.IdleFor(now); age >= headTicks || p >= closing && age >= quietTicks {
		g.close()
	}
}

func (g greeting) close()                  { g.Admitted.Close() }
func (g greeting) client() netip.Addr      { return netip.Addr{} }
func (g greeting) IdleFor(now int64) int64 { return now - g.began }
func (g greeting) EndUnused()              { g.close() }

// readProxyHeader reads what a proxy says of a connection, which is served then.
func (s *Server) readProxyHeader(g greeting, p protocol) {
	_ = g.SetReadDeadline(time.Now().Add(hop.ReadHeaderTimeout))
	client, read, err := parseProxyHeader(g.Admitted)
	defer s.forget(g) // when it is known as what it becomes
	if err != nil {
		s.router.log.Warn("a connection is closed: its peer is among --proxy-protocol and has sent no such header", "peer", g.RemoteAddr(), "error", err)
		g.close()
		return
	}
	_ = g.SetReadDeadline(time.Time{})
	if client != nil {
		g.IsOf(client)
	}
	s.admit(g.Admitted, read, p)
}

// parseProxyHeader reads a PROXY header, and returns the address that it names, nil
// if the connection is the proxy's own, and what has been read behind it.
func parseProxyHeader(conn io.Reader) (client net.Addr, read []byte, err error) {
	in := bufio.NewReaderSize(conn, proxyHeaderSize)
	if client, err = proxyClient(in); err != nil {
		return nil, nil, err
	}
	read, err = in.Peek(in.Buffered())
	return client, read, err
}

// proxyClient takes a PROXY header, and returns the address that it names. It waits until all
// of the header has come: [proxyproto.Read] takes one of version 1 only from one segment.
func proxyClient(in *bufio.Reader) (net.Addr, error) {
	start, err := in.Peek(len(proxyproto.SIGV2)) // no header is shorter
	if bytes.Equal(start, proxyproto.SIGV2) {
		if start, err = in.Peek(len(start) + 4); err != nil {
			return nil, err
		}
		command, family := proxyproto.ProtocolVersionAndCommand(start[12]), proxyproto.AddressFamilyAndProtocol(start[13])
		size := len(start) + int(binary.BigEndian.Uint16(start[14:]))
		switch {
		case size > proxyHeaderSize:
			return nil, fmt.Errorf("a PROXY header has %d bytes, %d at most are taken", size, proxyHeaderSize)
		case command == proxyproto.LOCAL, command == proxyproto.PROXY && family == proxyproto.UNSPEC: // it names nobody, whatever it says
			_, err = in.Discard(size)
			return nil, err
		}
	}
	for err == nil && start[0] == proxyproto.SIGV1[0] && start[len(start)-1] != '\n' && len(start) < maxProxyLine {
		start, err = in.Peek(len(start) + 1)
	}
	if err != nil {
		return nil, err
	}
	header, err := proxyproto.Read(in)
	if err != nil {
		return nil, err
	}
	if from, _, ok := header.TCPAddrs(); ok {
		return from, nil
	}
	return nil, nil
}
