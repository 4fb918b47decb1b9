package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// tlsHandshake is the first byte of a handshake in TLS.
const tlsHandshake = 22

// wantsTLS is an alert of TLS (protocol_version, fatal): the answer of a server that
// takes TLS alone to a client that does not speak it.
const wantsTLS = "\x15\x03\x03\x00\x02\x02\x46"

// errTLSHere and errTLSThere report that only one of two members uses TLS.
var (
	errTLSHere  = tlsDiffers("on", "off")
	errTLSThere = tlsDiffers("off", "on")
)

func tlsDiffers(here, there string) error {
	return &MismatchError{"TLS between members", here, there, "give all members --peer-cert, --peer-key and --peer-ca (PeerTLS), or none"}
}

// secure makes a connection one of TLS.
func (c *Client) secure(ctx context.Context, nc net.Conn) (net.Conn, error) {
	cfg := c.TLS.Clone()
	cfg.NextProtos = []string{ALPN, "http/1.1"} // the latter to get an answer from a server without the link
	if cfg.ServerName == "" {
		if host, _, err := net.SplitHostPort(c.Addr); err == nil {
			cfg.ServerName = host
		}
	}
	t := tls.Client(sock.BelowTLS(nc, nil), cfg)
	err := t.HandshakeContext(ctx)
	if p := t.ConnectionState().NegotiatedProtocol; err == nil && p != "" && p != ALPN {
		err = fmt.Errorf("%w: it chose %q in TLS", ErrNoLink, p)
	}
	if err != nil {
		nc.Close()
		return nil, explainTLS(err)
	}
	return t, nil
}

// explainTLS says what an error in a handshake of TLS means to members.
func explainTLS(err error) error {
	if _, other := errors.AsType[tls.RecordHeaderError](err); other {
		return errTLSHere
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return fmt.Errorf("the peer refuses the certificate of this process, or has none of its own: see the peer's log: %w", err)
	}
	return err
}
