package link

import (
	"net"
	"testing"
)

// fakePeer speaks the link frame by frame.
type fakePeer struct {
	nc net.Conn
	in *reader
}

func newFakePeer(nc net.Conn) *fakePeer {
	return &fakePeer{nc: nc, in: newReader(nc, 128<<10)}
}

// hello returns preface and hello of a peer with the default configuration.
func helloBytes(h hello) []byte {
	b := openFrame([]byte(preface))
	b = h.append(b)
	closeFrame(b, len(preface), header{kind: kindHello})
	return b
}

func defaultHello() hello {
	cfg := Config{}.withDefaults()
	return cfg.hello()
}

// handshake plays the server.
func (p *fakePeer) handshake(t *testing.T) {
	if _, err := p.in.next(len(preface)); err != nil {
		t.Error(err)
	}
	if h, _ := p.frame(t); h.kind != kindHello {
		t.Errorf("%v in place of hello", h.kind)
	}
	p.write(t, helloBytes(defaultHello()))
}

// greet plays the client.
func (p *fakePeer) greet(t *testing.T) {
	p.write(t, helloBytes(defaultHello()))
	if _, err := p.in.next(len(preface)); err != nil {
		t.Error(err)
	}
	if h, _ := p.frame(t); h.kind != kindHello {
		t.Errorf("%v in place of hello", h.kind)
	}
}

func (p *fakePeer) write(t *testing.T, b []byte) {
	if _, err := p.nc.Write(b); err != nil {
		t.Error(err)
	}
}

// frame reads a frame other than ping and pong.
func (p *fakePeer) frame(t *testing.T) (header, []byte) {
	for {
		h, err := p.in.header()
		if err != nil {
			t.Error(err)
			return h, nil
		}
		b, err := p.in.next(h.length)
		if err != nil {
			t.Error(err)
			return h, nil
		}
		if h.kind != kindPing && h.kind != kindPong {
			return h, append([]byte(nil), b...)
		}
	}
}

// request returns a request frame.
func requestFrame(id uint64, h requestHead, end bool) []byte {
	return appendFrame(nil, header{kind: kindRequest, end: end, stream: id}, h.append(nil))
}

// plainHead is the head of a simple request.
func plainHead(method string) requestHead {
	return requestHead{method: method, target: "/", host: "h", length: -1}
}
