// Package proxyheader reads the header of the PROXY protocol, version 1 or 2, that TCP load
// balancers send first on a connection. It knows nothing about the bytes that follow the header.
package proxyheader

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/pires/go-proxyproto"
)

// MaxSize bounds a PROXY header: the address, and the additions of version 2. It also bounds what
// Parse reads ahead.
const MaxSize = 4 << 10

// maxLine is the size of the longest header in version 1.
const maxLine = 107

// Parse reads a PROXY header. client is the address that it names, nil if the connection is the
// proxy's own; read holds the bytes read beyond the header.
func Parse(conn io.Reader) (client net.Addr, read []byte, err error) {
	in := bufio.NewReaderSize(conn, MaxSize)
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
		case size > MaxSize:
			return nil, fmt.Errorf("a PROXY header has %d bytes, want at most %d", size, MaxSize)
		case command == proxyproto.LOCAL, command == proxyproto.PROXY && family == proxyproto.UNSPEC: // it names nobody, whatever it says
			_, err = in.Discard(size)
			return nil, err
		}
	}
	for err == nil && start[0] == proxyproto.SIGV1[0] && start[len(start)-1] != '\n' && len(start) < maxLine {
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
