package gossip

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// sockets is a memberlist.Transport of TCP and UDP on one port. Its dials, and the streams that
// it opens, end with life. It reads packets into one buffer
// and copies what has come; memberlist's own makes a buffer of 64 KiB for each packet.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	log     *slog.Logger
	packets chan *memberlist.Packet
	streams chan net.Conn
	life    context.Context // ends with the Cluster's, and with Shutdown
	stop    context.CancelFunc
	readers sync.WaitGroup
}

const (
	packetBound = 64 << 10 // on the bytes of a packet
	packetRoom  = 2 << 20  // what the kernel is asked to keep of packets that were not read yet
)

func openSockets(life context.Context, addr netip.AddrPort, logger *slog.Logger) (*sockets, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(addr.Addr(), tcp.Addr().(*net.TCPAddr).AddrPort().Port())
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		tcp.Close()
		return nil, err
	}
	_ = udp.SetReadBuffer(packetRoom) // the kernel gives what it can
	s := &sockets{tcp: tcp, udp: udp, log: logger, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	s.life, s.stop = context.WithCancel(life)
	s.readers.Go(s.accept)
	s.readers.Go(s.read)
	return s, nil
}

func (s *sockets) port() uint16 { return s.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }

func (s *sockets) accept() {
	for {
		conn, err := netutil.Accept(s.tcp, s.log)
		if err != nil {
			return
		}
		select {
		case s.streams <- conn:
		case <-s.life.Done():
			conn.Close()
		}
	}
}

func (s *sockets) read() {
	b := make([]byte, packetBound)
	for s.life.Err() == nil {
		n, from, err := s.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			wake.Sleep(time.Millisecond, s.life.Done()) // the error may be one of a packet sent before
			continue
		}
		if n == 0 {
			continue
		}
		p := &memberlist.Packet{Buf: bytes.Clone(b[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}
		select {
		case s.packets <- p:
		case <-s.life.Done():
		}
	}
}

// FinalAdvertiseAddr returns the address that the Cluster has found out.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("gossip: address to advertise: %w", err)
	}
	return addr.Unmap().AsSlice(), port, nil
}

func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err == nil {
		_, err = s.udp.WriteToUDPAddrPort(b, to)
	}
	return time.Now(), err
}

func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(s.life, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return netutil.Until(s.life, conn), nil
}

// Shutdown closes the sockets and waits for their readers.
func (s *sockets) Shutdown() error {
	s.stop()
	s.tcp.Close()
	s.udp.Close()
	s.readers.Wait()
	return nil
}
