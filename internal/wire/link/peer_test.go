package link

import (
	"net"
	"net/http"
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

// clientGreeting returns all that a client with the default configuration says in
// a handshake.
func clientGreeting() []byte {
	return append(helloFrame(&hello{Version: Version}), proofFrame()...)
}

func helloFrame(h *hello) []byte {
	return appendFrame([]byte(preface), header{kind: kindHello}, unproven(h))
}

// helloFrameOf is a hello of another version, whose members have other types.
func helloFrameOf(version int) []byte {
	return appendFrame([]byte(preface), header{kind: kindHello}, unproven(map[string]any{"version": version, "proves": "new"}))
}

func proofFrame() []byte {
	return appendFrame(nil, header{kind: kindProof}, unproven(defaultSettings()))
}

// serverGreeting returns preface and hello of a server with the default
// configuration.
func serverGreeting() []byte {
	return serverGreetingTo("pipe")
}

// serverGreetingTo is that to a client that it sees there.
func serverGreetingTo(client string) []byte {
	s := defaultSettings()
	s.Sees = client
	return helloFrame(&hello{Version: Version, Settings: &s})
}

func defaultSettings() settings {
	cfg := Config{}.withDefaults()
	return cfg.settings()
}

// handshake plays the server.
func (p *fakePeer) handshake(t *testing.T) {
	p.answerHello(t)
	if h, _ := p.frame(t); h.kind != kindProof {
		t.Errorf("%v in place of a proof", h.kind)
	}
}

// answerHello plays the server, which has not read the client's proof.
func (p *fakePeer) answerHello(t *testing.T) {
	if _, err := p.in.next(len(preface)); err != nil {
		t.Error(err)
	}
	if h, _ := p.frame(t); h.kind != kindHello {
		t.Errorf("%v in place of hello", h.kind)
	}
	p.write(t, serverGreetingTo(p.nc.RemoteAddr().String()))
}

// greet plays the client.
func (p *fakePeer) greet(t *testing.T) {
	sent := make(chan struct{})
	go func() {
		p.write(t, clientGreeting())
		close(sent)
	}()
	if _, err := p.in.next(len(preface)); err != nil {
		t.Error(err)
	}
	if h, _ := p.frame(t); h.kind != kindHello {
		t.Errorf("%v in place of hello", h.kind)
	}
	<-sent
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
func requestFrame(id uint64, r *Request, end bool) []byte {
	return appendFrame(nil, header{kind: kindRequest, end: end, stream: id}, r.appendHead(nil, 0))
}

// plainHead is the head of a simple request, which declares no length.
func plainHead(method string) *Request {
	return &Request{Method: method, Target: "/", Host: "h", Body: http.NoBody, ContentLength: -1}
}
