package h2

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// client is a client that sends what it is told to.
type client struct {
	t      testing.TB
	nc     net.Conn
	server *Conn
	done   chan struct{} // closed when the server has done with the connection
	dec    *hpack.Decoder
	fields []Field
	seen   []byte // of the frame that next returned last
}

var testServer = Server{MaxStreams: 8, MaxHeaderBytes: 4 << 10, HeadTicks: 10, IdleTicks: 50, ClientTicks: 20}

// connect returns a client that has said nothing.
func connect(t testing.TB, s *Server, handler func(*Stream)) *client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, s, nc, far, handler)
}

// serve serves far to a client at near.
func serve(t testing.TB, s *Server, near, far net.Conn, handler func(*Stream)) *client {
	c := newClient(t, near)
	c.server, c.done = s.NewConn(far, handler), make(chan struct{})
	go func() {
		defer close(c.done)
		c.server.Serve(nil)
	}()
	t.Cleanup(func() {
		near.Close()
		<-c.done
		s.Close()
	})
	return c
}

func newClient(t testing.TB, nc net.Conn) *client {
	c := &client{t: t, nc: nc}
	c.dec = hpack.NewDecoder(4096, func(f Field) { c.fields = append(c.fields, f) })
	return c
}

// hello exchanges SETTINGS with a server, whichever it is.
func (c *client) hello(settings ...uint32) {
	c.t.Helper()
	c.send([]byte(preface), settingsFrame(settings...), ackFrame)
	for e := c.event(); e != "SETTINGS ack=true"; e = c.event() {
		if e == "closed" {
			c.t.Fatal("the server has closed the connection")
		}
	}
}

// greet returns a client that has exchanged SETTINGS with the server. Settings
// are pairs of number and value.
func greet(t testing.TB, handler func(*Stream), settings ...uint32) *client {
	t.Helper()
	s := Server{MaxStreams: testServer.MaxStreams, MaxHeaderBytes: testServer.MaxHeaderBytes, HeadTicks: testServer.HeadTicks, IdleTicks: testServer.IdleTicks, ClientTicks: testServer.ClientTicks}
	c := connect(t, &s, handler)
	c.hello(settings...)
	return c
}

var ackFrame = appendFrame(nil, frame{kind: frameSettings, flags: flagAck})

func settingsFrame(settings ...uint32) []byte {
	var p []byte
	for i := 0; i < len(settings); i += 2 {
		p = appendSetting(p, uint16(settings[i]), settings[i+1])
	}
	return raw(frameSettings, 0, 0, string(p))
}

// raw makes a frame.
func raw(kind frameKind, flags uint8, stream uint32, payload string) []byte {
	return append(appendFrame(nil, frame{len(payload), kind, flags, stream}), payload...)
}

func word(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// list encodes fields, which are given as name and value in turn, without the
// dynamic table.
func list(fields ...string) string {
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(Field{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.String()
}

// get is the head of a simple request, with more fields.
func get(fields ...string) string {
	return list(append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/"}, fields...)...)
}

func post(fields ...string) string {
	return list(append([]string{":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/"}, fields...)...)
}

// open makes HEADERS that open a stream.
func open(stream uint32, end bool, block string) []byte {
	flags := uint8(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	return raw(frameHeaders, flags, stream, block)
}

func data(stream uint32, end bool, p string) []byte {
	var flags uint8
	if end {
		flags = flagEndStream
	}
	return raw(frameData, flags, stream, p)
}

func (c *client) send(frames ...[]byte) {
	c.t.Helper()
	for _, f := range frames {
		if _, err := c.nc.Write(f); err != nil {
			c.t.Fatal(err)
		}
	}
}

// next returns the next frame; its payload is in c.seen.
func (c *client) next() (frame, error) {
	var head [frameHeaderLen]byte
	if _, err := io.ReadFull(c.nc, head[:]); err != nil {
		return frame{}, err
	}
	f := parseFrame(head[:])
	c.seen = make([]byte, f.length)
	_, err := io.ReadFull(c.nc, c.seen)
	return f, err
}

// event tells the next frame that is not about windows.
func (c *client) event() string {
	for {
		f, err := c.next()
		if err != nil {
			return "closed"
		}
		if f.kind != frameWindowUpdate {
			return c.tell(f)
		}
	}
}

func (c *client) tell(f frame) (s string) {
	switch f.kind {
	case frameHeaders:
		c.fields = nil
		c.dec.Write(c.seen)
		s = fmt.Sprintf("HEADERS %d", f.stream)
		for _, f := range c.fields {
			s += fmt.Sprintf(" %s=%s", f.Name, f.Value)
		}
	case frameData:
		s = fmt.Sprintf("DATA %d %.20q", f.stream, c.seen)
	case frameReset:
		return fmt.Sprintf("RESET %d %v", f.stream, Code(binary.BigEndian.Uint32(c.seen)))
	case frameGoAway:
		return fmt.Sprintf("GOAWAY %d %v", binary.BigEndian.Uint32(c.seen), Code(binary.BigEndian.Uint32(c.seen[4:])))
	case framePing:
		return fmt.Sprintf("PING %q ack=%v", c.seen, f.has(flagAck))
	case frameSettings:
		return fmt.Sprintf("SETTINGS ack=%v", f.has(flagAck))
	default:
		return fmt.Sprintf("%+v", f)
	}
	if f.has(flagEndStream) {
		s += " end"
	}
	return s
}

// expect fails the test unless these events come next.
func (c *client) expect(events ...string) {
	c.t.Helper()
	for _, want := range events {
		if got := c.event(); got != want {
			c.t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// answer reads an answer to its end and returns how it begins, or what came in
// its place.
func (c *client) answer() (begin string) {
	begin = c.event()
	for e := begin; !strings.HasSuffix(e, " end"); e = c.event() {
		if !strings.HasPrefix(e, "HEADERS") && !strings.HasPrefix(e, "DATA") {
			return e
		}
	}
	return begin
}

// settle returns when the server has taken all that was sent.
func (c *client) settle() {
	c.t.Helper()
	c.send(raw(framePing, 0, 0, "settling"))
	c.expect(`PING "settling" ack=true`)
}

// check lets n ticks pass when all is written.
func (c *client) check(n int, leave bool) {
	waitFor(func() bool { return c.locked(func() bool { return !c.server.out.writing }) })
	for range n {
		c.server.Check(leave)
	}
}

// echo answers with what it was asked.
func echo(s *Stream) {
	body, err := io.ReadAll(s)
	if err != nil {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s%s %d %q", s.Method, s.Scheme, s.Authority, s.Path, s.ContentLength, body)
	for _, list := range [][]Field{s.Fields, s.Trailer()} {
		for _, f := range list {
			fmt.Fprintf(&text, " %s=%s", f.Name, f.Value)
		}
	}
	s.Answer(200, []Field{{Name: "x", Value: text.String()}}, nil, true)
}

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
	"FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint32(c))
}
