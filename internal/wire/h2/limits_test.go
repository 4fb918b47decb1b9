package h2

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// A client that asks for much and gives nothing is cut off.
func TestFloods(t *testing.T) {
	for name, send := range map[string]func(c *client, i uint32) []byte{
		"ping":       func(*client, uint32) []byte { return raw(framePing, flagAck, 0, "12345678") },
		"settings":   func(*client, uint32) []byte { return settingsFrame() },
		"window":     func(*client, uint32) []byte { return settingsFrame(settingInitialWindow, 1, settingInitialWindow, 2) },
		"priority":   func(_ *client, i uint32) []byte { return raw(framePriority, 0, 2*i+1, word(0)+"\x00") },
		"extension":  func(*client, uint32) []byte { return raw(0x55, 0, 0, "") },
		"empty data": func(*client, uint32) []byte { return data(1, false, "") },
		"rapid reset": func(_ *client, i uint32) []byte {
			return frames(open(2*i+3, true, get()), raw(frameReset, 0, 2*i+3, word(8)))
		},
		"malformed": func(_ *client, i uint32) []byte { return open(2*i+3, true, get("A", "b")) },
		"made you reset": func(_ *client, i uint32) []byte {
			return frames(open(2*i+3, false, post()), appendWord(nil, frameWindowUpdate, 2*i+3, 0))
		},
		"tiny window": func(*client, uint32) []byte { return appendWord(nil, frameWindowUpdate, 0, 1) },
		"continuations": func(_ *client, i uint32) []byte {
			if i == 0 {
				return raw(frameHeaders, 0, 3, "")
			}
			return raw(frameContinuation, 0, 3, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			defer close(hold)
			c := greet(t, func(s *Stream) {
				if s.id == 1 {
					select {
					case <-hold:
					case <-s.Context().Done():
					}
				}
			})
			c.send(open(1, false, post()))
			go func() {
				for i := range uint32(2 * allowanceMax) {
					if _, err := c.nc.Write(send(c, i)); err != nil {
						return
					}
				}
			}()
			last := ""
			for e := c.event(); e != "closed"; e = c.event() {
				last = e
			}
			if !strings.HasPrefix(last, "GOAWAY") || !strings.HasSuffix(last, "ENHANCE_YOUR_CALM") {
				t.Errorf("the last frame is %s", last)
			}
		})
	}
}

// Time makes up for it.
func TestCalm(t *testing.T) {
	c := greet(t, echo)
	for range 3 * allowanceMax / allowanceTick {
		for range allowanceTick / 2 {
			c.send(raw(framePing, flagAck, 0, "12345678"))
		}
		c.settle()
		c.check(1, false)
	}
}

func TestMaxStreams(t *testing.T) {
	entered, hold := make(chan struct{}, 100), make(chan struct{})
	c := greet(t, func(s *Stream) {
		entered <- struct{}{}
		<-hold
		s.Answer(200, nil, nil, true)
	})
	for id := range uint32(8) {
		c.send(open(2*id+1, true, get()))
		<-entered
	}
	c.send(open(17, true, get()))
	c.expect("RESET 17 REFUSED_STREAM")
	// Handlers of streams that were given up count as well, twice as many.
	for id := range uint32(8) {
		c.send(raw(frameReset, 0, 2*id+1, word(8)), open(2*id+101, true, get()))
		<-entered
	}
	c.send(raw(frameReset, 0, 101, word(8)), open(201, true, get()))
	c.expect("RESET 201 REFUSED_STREAM")
	close(hold)
	for range 7 {
		if e := c.event(); !strings.HasSuffix(e, ":status=200 end") {
			t.Error(e)
		}
	}
}

// A client that does not read makes nothing grow, and is cut off.
func TestClientThatDoesNotRead(t *testing.T) {
	near, far := net.Pipe()
	s := Server{MaxStreams: 8, MaxHeaderBytes: 1000, HeadTicks: 10, IdleTicks: 10, ClientTicks: 5}
	failed := make(chan error, 8)
	c := serve(t, &s, near, far, func(s *Stream) {
		err := s.Answer(200, nil, make([]byte, 1<<20), false)
		for err == nil {
			err = s.Write(make([]byte, 1<<20), false)
		}
		failed <- err
	})
	c.send([]byte(preface), settingsFrame(settingInitialWindow, maxWindow), ackFrame, appendWord(nil, frameWindowUpdate, 0, maxWindow-defaultWindow))
	for id := range uint32(8) {
		c.send(open(2*id+1, true, get()))
	}
	waitFor(func() bool {
		return c.locked(func() bool {
			if n := len(c.server.out.buf); n > highWater+maxFrame+1000 {
				t.Errorf("%d bytes are queued", n)
				return true
			}
			return c.server.out.blocked == 8 && c.server.out.since != 0
		})
	})
	for range 10 {
		c.server.Check(false)
	}
	for range 8 {
		<-failed
	}
	<-c.done
}

// Nor does one that makes the server answer what cannot wait.
func TestPingsOfAClientThatDoesNotRead(t *testing.T) {
	near, far := net.Pipe()
	s := Server{MaxStreams: 8, MaxHeaderBytes: 1000, HeadTicks: 1000, IdleTicks: 10000}
	c := serve(t, &s, near, far, echo)
	c.send([]byte(preface), settingsFrame(), ackFrame)
	for i := 0; ; i++ {
		if _, err := near.Write(raw(framePing, 0, 0, "12345678")); err != nil {
			break
		}
		if i%allowanceTick == 0 {
			c.server.Check(false)
		}
		if i > 2*hardLimit/17 {
			t.Fatal("it goes on")
		}
	}
	<-c.done
}

func TestLargeHeads(t *testing.T) {
	c := greet(t, echo)
	c.send(open(1, false, get("x", strings.Repeat("y", 5000))))
	c.expect("HEADERS 1 :status=431 end", "RESET 1 NO_ERROR")
	c.send(data(1, true, "late"))
	c.send(open(3, false, post()), open(3, true, list("x", strings.Repeat("y", 5000))))
	c.expect("RESET 3 ENHANCE_YOUR_CALM")
	many := make([]string, 0, 400)
	for i := range 200 {
		many = append(many, fmt.Sprint("x", i), "")
	}
	c.send(open(5, true, get(many...)))
	c.expect("HEADERS 5 :status=431 end")
	c.send(open(7, true, get()))
	c.expect(`HEADERS 7 :status=200 x=GET http h/ 0 "" end`)
}

// A few bytes that refer to the table stand for as many fields, and kilobytes
// each: a list ends at its bounds, not when all of it has been decoded, and who
// sends such lists is cut off. net/http's server takes the same as a yardstick.
func TestReferencesToLargeFields(t *testing.T) {
	const some, most = 20, allowanceMax / calmReset
	large := strings.Repeat("y", 3000)
	for name, tt := range map[string]struct {
		value string
		refs  int
		lists int    // that are sent one after the other
		most  int    // of them that are answered
		want  string // how the first one is
	}{
		"few":         {"y", maxFields - 10, some, some, ":status=200"},
		"many":        {"y", maxFields, most * 5 / 4, most, ":status=431"},
		"large":       {large, 30, most * 5 / 4, most, ":status=431"},
		"a flood":     {"y", 1500, some, 0, "ENHANCE_YOUR_CALM"},
		"large flood": {large, 16 << 10, some, 0, "ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			attack := func(connect func(*testing.T, answering, ...uint32) *client) (c *client, r referred) {
				var fields atomic.Int64
				c = connect(t, func(n int) []byte {
					fields.Store(max(fields.Load(), int64(n)))
					return nil
				})
				r = c.refer(tt.value, tt.refs, tt.lists)
				r.fields = int(fields.Load())
				return c, r
			}
			c, got := attack(ours)
			_, theirs := attack(yardstick)
			t.Logf("of %d lists %d are answered, net/http: %d; a request has %d fields, net/http: %d", tt.lists, got.answered, theirs.answered, got.fields, theirs.fields)
			if !strings.Contains(got.first, tt.want) {
				t.Errorf("the first answer is %s, want %s", got.first, tt.want)
			}
			if got.answered > tt.most || got.answered < tt.most*9/10 {
				t.Errorf("%d lists were answered, want %d or some less", got.answered, tt.most)
			}
			if got.fields > maxFields {
				t.Errorf("a request had %d fields", got.fields)
			}
			if got.answered > theirs.answered || got.fields > theirs.fields {
				t.Errorf("%+v is more than net/http takes: %+v", got, theirs)
			}
			c.locked(func() bool {
				if n := c.server.block.count; n > excess*maxFields+decodeSize {
					t.Errorf("%d fields were decoded", n)
				}
				return true
			})
		})
	}
}

// referred is what a server has made of lists of references.
type referred struct {
	first    string // answer, or how the connection was cut
	answered int
	fields   int // most of a request that the app got
}

// refer sends lists that refer to one field so many times, until the connection
// is cut.
func (c *client) refer(value string, refs, lists int) (r referred) {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	enc.WriteField(Field{Name: "x", Value: value})
	c.send(appendWord(nil, frameWindowUpdate, 0, 1<<20), open(1, true, get()+block.String()))
	c.answer()
	list := get() + strings.Repeat("\xbe", refs) // the last that went into the table
	for i := range uint32(lists) {
		id := 2*i + 3
		frames := raw(frameHeaders, flagEndStream, id, "")
		for rest := list; rest != ""; {
			n, flags := min(len(rest), maxFrame), uint8(0)
			if n == len(rest) {
				flags = flagEndHeaders
			}
			frames = append(frames, raw(frameContinuation, flags, id, rest[:n])...)
			rest = rest[n:]
		}
		_, _ = c.nc.Write(frames) // or it has been cut
		e := c.answer()
		if i == 0 {
			r.first = e
		}
		if !strings.HasPrefix(e, "HEADERS") {
			return r
		}
		r.answered++
	}
	return r
}
