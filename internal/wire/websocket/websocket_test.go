package websocket_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// frame returns one with that opcode and so many bytes of payload, its length
// written in as many bytes as a server would.
func frame(opcode byte, payload int, masked bool) []byte {
	b := []byte{0x80 | opcode, 0}
	switch {
	case payload < 126:
		b[1] = byte(payload)
	case payload < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(payload))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(payload))
	}
	if masked {
		b[1] |= 0x80
		b = append(b, "mask"...)
	}
	return append(b, bytes.Repeat([]byte{0x88}, payload)...)
}

func TestFrames(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 127, 1<<16 - 1, 1 << 16, 100_000} {
		for _, masked := range []bool{false, true} {
			for _, piece := range []int{1, 3, 1 << 20} {
				t.Run(fmt.Sprint(size, masked, piece), func(t *testing.T) {
					one := frame(2, size, masked)
					stream := append(bytes.Clone(one), frame(9, 4, masked)...)
					var f websocket.Frames
					if !f.AtBoundary() {
						t.Error("not at a boundary at first")
					}
					taken := 0
					for taken < len(stream) {
						n := f.Take(stream[taken:min(taken+piece, len(stream))])
						taken += n
						if want := taken == len(one) || taken == len(stream); f.AtBoundary() != want {
							t.Fatalf("at %d of %d+6: at a boundary: %v", taken, len(one), f.AtBoundary())
						}
					}
					if f.Closed() {
						t.Error("closed without a close frame")
					}
				})
			}
		}
	}
}

func TestFramesAfterClose(t *testing.T) {
	var f websocket.Frames
	b := websocket.AppendClose(nil, 1001, strings.Repeat("r", 200))
	if len(b) != 2+125 || b[0] != 0x88 || b[1] != 125 {
		t.Errorf("% x", b)
	}
	if n := f.Take(b[:len(b)-1]); n != len(b)-1 || f.Closed() {
		t.Errorf("%d of %d, closed %v", n, len(b), f.Closed())
	}
	if f.Take(b[len(b)-1:]); !f.Closed() || !f.AtBoundary() {
		t.Error("not closed")
	}
}

func TestFramesWithoutALength(t *testing.T) {
	var f websocket.Frames
	b := append([]byte{0x82, 127, 0xff}, make([]byte, 100)...)
	if n := f.Take(b); n != len(b) || f.AtBoundary() {
		t.Errorf("%d, %v", n, f.AtBoundary())
	}
	if n := f.Take(frame(1, 0, false)); n != 2 || f.AtBoundary() {
		t.Errorf("%d, %v after it", n, f.AtBoundary())
	}
}

// FuzzFrames compares the pieces of a stream with the whole of it.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x03abc\x88\x02\x03\xf4"), uint8(1))
	f.Add(append(frame(2, 300, true), frame(8, 2, false)...), uint8(7))
	f.Add([]byte("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x00"), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		var whole, pieces websocket.Frames
		bounds := map[int]bool{0: true}
		for n := 0; n < len(stream); {
			k := whole.Take(stream[n:])
			if k <= 0 || k > len(stream)-n {
				t.Fatalf("took %d of %d", k, len(stream)-n)
			}
			n += k
			bounds[n] = whole.AtBoundary()
			if n < len(stream) && !whole.AtBoundary() {
				t.Fatalf("took %d of %d amid a frame", k, len(stream))
			}
		}
		for n := 0; n < len(stream); {
			n += pieces.Take(stream[n:min(n+int(size)+1, len(stream))])
			if pieces.AtBoundary() != bounds[n] {
				t.Fatalf("in pieces at a boundary after %d: %v", n, pieces.AtBoundary())
			}
		}
		if whole.Closed() != pieces.Closed() {
			t.Fatal("closed in one way only")
		}
	})
}

// goingAway runs f with the gateway's side of a connection, and the client's.
func goingAway(t *testing.T, protocol string, f func(c *websocket.Conn, client net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, client := net.Pipe()
		c := websocket.NewConn(near, protocol)
		defer client.Close()
		defer c.Close()
		f(c, client)
	})
}

func read(t *testing.T, client net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the client reads % x, %v, want % x", got[:n], err, want)
	}
}

const grace = time.Second

var restart = websocket.AppendClose(nil, websocket.ServiceRestart, "moved")

func goAway(c *websocket.Conn) { c.GoAway(websocket.ServiceRestart, "moved", grace) }

func TestGoAwayBetweenFrames(t *testing.T) {
	goingAway(t, "WebSocket", func(c *websocket.Conn, client net.Conn) {
		message := frame(1, 300, false)
		go c.Write(message)
		read(t, client, message)
		synctest.Wait()
		goAway(c)
		goAway(c)
		read(t, client, restart)
		if n, err := c.Write(message); n != len(message) || err != nil {
			t.Errorf("a message after it: %d, %v", n, err)
		}
		go client.Write([]byte("answer"))
		got := make([]byte, 10)
		if n, err := c.Read(got); string(got[:n]) != "answer" {
			t.Errorf("%q, %v of the client", got[:n], err)
		}
		start := time.Now()
		if n, err := client.Read(got); n != 0 || err == nil || time.Since(start) != grace {
			t.Errorf("the client reads %d, %v after %v", n, err, time.Since(start))
		}
	})
}

func TestGoAwayAmidAFrame(t *testing.T) {
	goingAway(t, "websocket", func(c *websocket.Conn, client net.Conn) {
		first, second := frame(2, 70_000, false), frame(1, 5, false)
		go c.Write(first[:5])
		read(t, client, first[:5])
		synctest.Wait()
		goAway(c)
		go func() {
			c.Write(first[5:1000])
			c.Write(append(bytes.Clone(first[1000:]), second...))
		}()
		read(t, client, first[5:])
		read(t, client, restart)
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("more after the close frame: %d, %v", n, err)
		}
	})
}

func TestGoAwayDuringAWrite(t *testing.T) {
	goingAway(t, "websocket", func(c *websocket.Conn, client net.Conn) {
		message := frame(1, 50, false)
		go c.Write(message)
		read(t, client, message[:10])
		goAway(c)
		read(t, client, message[10:])
		read(t, client, restart)
	})
}

func TestGoAwayAfterTheAppsClose(t *testing.T) {
	goingAway(t, "websocket", func(c *websocket.Conn, client net.Conn) {
		own := websocket.AppendClose(nil, 1000, "")
		go c.Write(own)
		read(t, client, own)
		synctest.Wait()
		goAway(c)
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("more after the app's close frame: %d, %v", n, err)
		}
	})
}

func TestGoAwayOfAnAppThatStops(t *testing.T) {
	goingAway(t, "websocket", func(c *websocket.Conn, client net.Conn) {
		go c.Write(frame(1, 50, false)[:20])
		read(t, client, frame(1, 50, false)[:20])
		synctest.Wait()
		goAway(c)
		start := time.Now()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil || time.Since(start) != grace {
			t.Errorf("amid a frame the client gets %d, %v after %v", n, err, time.Since(start))
		}
	})
}

func TestGoAwayOfAnotherProtocol(t *testing.T) {
	goingAway(t, "chat", func(c *websocket.Conn, client net.Conn) {
		goAway(c)
		start := time.Now()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil || time.Since(start) != 0 {
			t.Errorf("%d, %v after %v", n, err, time.Since(start))
		}
	})
}
