package h2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// What a client grants is kept to, on a stream and on the connection, also when
// it changes its mind.
func TestSendWindows(t *testing.T) {
	c := greet(t, func(s *Stream) { s.Answer(200, nil, []byte("0123456789"), true) }, settingInitialWindow, 3)
	c.send(open(1, true, get()))
	c.expect("HEADERS 1 :status=200", `DATA 1 "012"`)
	c.settle()
	c.send(appendWord(nil, frameWindowUpdate, 1, 2))
	c.expect(`DATA 1 "34"`)
	c.send(settingsFrame(settingInitialWindow, 1)) // now it has 2 too many
	c.expect("SETTINGS ack=true")
	c.send(appendWord(nil, frameWindowUpdate, 1, 2))
	c.settle()
	c.send(appendWord(nil, frameWindowUpdate, 1, 1))
	c.expect(`DATA 1 "5"`)
	c.send(settingsFrame(settingInitialWindow, 100))
	c.expect("SETTINGS ack=true", `DATA 1 "6789" end`)
}

// An answer ends without credit: also when the client has taken back some of what was used.
func TestEndsNeedNoCredit(t *testing.T) {
	shrunk := make(chan struct{})
	c := greet(t, func(s *Stream) {
		s.Answer(200, nil, []byte("012"), false)
		<-shrunk
		s.Write(nil, true)
	}, settingInitialWindow, 3)
	c.send(open(1, true, get()))
	c.expect("HEADERS 1 :status=200", `DATA 1 "012"`)
	c.send(settingsFrame(settingInitialWindow, 1))
	c.expect("SETTINGS ack=true")
	close(shrunk)
	c.expect(`DATA 1 "" end`)
}

func TestConnectionWindow(t *testing.T) {
	c := greet(t, func(s *Stream) {
		s.Answer(200, nil, make([]byte, defaultWindow-2), false)
		s.Write([]byte("ab"), false)
		s.Write([]byte("cd"), true)
	}, settingInitialWindow, 1<<20)
	c.send(open(1, true, get()))
	got := 0
	for got < defaultWindow {
		if f, err := c.next(); err != nil {
			t.Fatal(err)
		} else if f.kind == frameData {
			got += f.length
		}
	}
	c.settle()
	c.send(open(3, true, get())) // its head needs no window
	c.expect("HEADERS 3 :status=200")
	c.send(raw(frameReset, 0, 3, word(uint32(Cancel))))
	c.settle()
	c.send(appendWord(nil, frameWindowUpdate, 0, 2))
	c.expect(`DATA 1 "cd" end`)
}

// A body of any size comes through windows that its reader opens, and nothing
// more than a window is kept.
func TestUpload(t *testing.T) {
	const size = 4 << 20
	read := make(chan struct{})
	c := greet(t, func(s *Stream) {
		<-read
		n, err := io.Copy(io.Discard, s)
		s.Answer(200, []Field{{Name: "x", Value: fmt.Sprint(n, err)}}, nil, true)
	})
	c.send(open(1, false, post("content-length", fmt.Sprint(size))))
	stream, conn, sent := initialReceive, connReceive, 0
	chunk := make([]byte, maxFrame)
	for opened := false; sent < size; {
		n := min(len(chunk), stream, conn, size-sent)
		if n == 0 {
			if !opened {
				if sent != initialReceive {
					t.Fatalf("the window was %d", sent)
				}
				opened = true
				close(read)
			}
			f, err := c.next()
			if err != nil || f.kind != frameWindowUpdate {
				t.Fatalf("%+v, %v", f, err)
			}
			grant := int(binary.BigEndian.Uint32(c.seen))
			if f.stream == 0 {
				conn += grant
			} else {
				stream += grant
			}
			continue
		}
		sent, stream, conn = sent+n, stream-n, conn-n
		c.send(data(1, sent == size, string(chunk[:n])))
	}
	c.expect(fmt.Sprintf("HEADERS 1 :status=200 x=%d <nil> end", size))
}

func TestExceededWindows(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	c := greet(t, func(*Stream) { <-hold })
	c.send(open(1, false, post()))
	for range initialReceive / maxFrame {
		c.send(data(1, false, strings.Repeat("x", maxFrame)))
	}
	c.settle()
	c.send(data(1, false, "x"))
	c.expect("RESET 1 FLOW_CONTROL_ERROR")
}

// Bodies that nobody reads do not use the connection's window up for ever.
func TestUnreadBodies(t *testing.T) {
	c := greet(t, func(s *Stream) {
		s.Read(make([]byte, 1))
		s.Answer(204, nil, nil, true)
	})
	chunk := strings.Repeat("x", maxFrame)
	conn := connReceive
	for id := uint32(1); id < 200; id += 2 {
		c.send(open(id, false, post()))
		for range initialReceive / maxFrame {
			c.send(data(id, false, chunk))
			conn -= maxFrame
		}
		for answered := false; !answered; {
			f, err := c.next()
			switch {
			case err != nil:
				t.Fatal(err)
			case f.kind == frameReset:
				answered = true
			case f.kind == frameWindowUpdate && f.stream == 0:
				conn += int(binary.BigEndian.Uint32(c.seen))
			}
		}
		if conn < initialReceive {
			t.Fatalf("%d bytes are left of the connection's window after %d requests", conn, id/2+1)
		}
	}
}

// room is memory for so many bytes of each body.
type room int

func (r room) Reserve(n int) bool { return n <= int(r) }

// Bodies leave the connection's window to others as far as there is memory for
// them.
func TestKeep(t *testing.T) {
	for _, r := range []room{0, 2 * maxFrame, initialReceive} {
		t.Run(fmt.Sprint(r), func(t *testing.T) { testKeep(t, r) })
	}
}

func testKeep(t *testing.T, r room) {
	kept, hold := make(chan struct{}), make(chan struct{})
	c := greet(t, func(s *Stream) {
		s.Keep(r)
		kept <- struct{}{}
		<-hold
		n, err := io.Copy(io.Discard, s)
		s.Answer(200, []Field{{Name: "x", Value: fmt.Sprint(n, err)}}, nil, true)
	})
	chunk := strings.Repeat("x", maxFrame)
	want := make(map[string]bool)
	for i := range uint32(testServer.MaxStreams) {
		c.send(open(2*i+1, false, post()))
		<-kept
		for range initialReceive/maxFrame - 1 {
			c.send(data(2*i+1, false, chunk))
		}
		want[fmt.Sprintf("HEADERS %d :status=200 x=%d <nil> end", 2*i+1, initialReceive)] = true
	}
	c.settle()
	for i := range uint32(testServer.MaxStreams) {
		c.send(data(2*i+1, true, chunk))
	}
	c.settle()
	unread := testServer.MaxStreams * (initialReceive - int(r))
	if !c.locked(func() bool { return c.server.receive+c.server.owed == connReceive-unread }) {
		t.Errorf("the connection's window is %d and %d, with %d bytes for which there is no memory", c.server.receive, c.server.owed, unread)
	}
	close(hold)
	for range testServer.MaxStreams {
		e := c.event()
		if !want[e] {
			t.Error(e)
		}
		delete(want, e)
	}
	if !c.locked(func() bool { return c.server.receive+c.server.owed == connReceive }) {
		t.Errorf("the connection's window is %d and %d", c.server.receive, c.server.owed)
	}
}

func TestRead(t *testing.T) {
	got := make(chan error, 3)
	c := greet(t, func(s *Stream) {
		if s.Path == "/interrupted" {
			s.Interrupt()
		}
		_, err := io.ReadAll(s)
		got <- err
	})
	to := func(path string, more ...string) string {
		return list(append([]string{":method", "POST", ":scheme", "http", ":authority", "h", ":path", path}, more...)...)
	}
	c.send(open(1, false, to("/interrupted")))
	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	c.send(open(3, false, to("/")), raw(frameReset, 0, 3, word(uint32(Cancel))))
	if err := <-got; err != errReset {
		t.Errorf("reset by the client: %v", err)
	}
	c.send(open(5, false, to("/", "content-length", "5")), data(5, true, "ab"))
	if err := <-got; err != errBroken {
		t.Errorf("short: %v", err)
	}
}

// Answers with long heads, bodies and trailers.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("v", 40_000)
	body := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	c := greet(t, func(s *Stream) {
		s.Answer(103, []Field{{Name: "link", Value: "a"}}, nil, false)
		s.Answer(200, []Field{{Name: "long", Value: long}}, body, false)
		s.Write(nil, false)
		if err := s.End([]Field{{Name: "sum", Value: "1"}}); err != nil {
			t.Error(err)
		}
		if err := s.Write([]byte("more"), false); err != errEnded {
			t.Errorf("Write behind the end: %v", err)
		}
	}, settingInitialWindow, 1<<20)
	c.send(appendWord(nil, frameWindowUpdate, 0, 1<<20), open(1, true, get()))
	c.expect("HEADERS 1 :status=103 link=a")
	var block, content []byte
	for block == nil || content == nil || len(content) < len(body) {
		f, err := c.next()
		switch {
		case err != nil:
			t.Fatal(err)
		case f.length > maxFrame:
			t.Fatalf("%+v", f)
		case f.kind == frameHeaders || f.kind == frameContinuation:
			block = append(block, c.seen...)
		default:
			content = append(content, c.seen...)
		}
	}
	c.fields = nil
	c.dec.Write(block)
	if len(c.fields) != 2 || c.fields[1].Value != long || !bytes.Equal(content, body) {
		t.Errorf("%d fields, %d bytes", len(c.fields), len(content))
	}
	c.expect("HEADERS 1 sum=1 end")
}

// What is said again and again is said with a byte.
func TestRepeatedFields(t *testing.T) {
	c := greet(t, func(s *Stream) {
		s.Answer(200, []Field{{Name: "content-type", Value: "text/plain"}, {Name: "set-cookie", Value: "secret=1"}, {Name: "x-id", Value: fmt.Sprint(s.id)}}, nil, true)
	})
	var first, last int
	for id := uint32(1); id < 20; id += 2 {
		c.send(open(id, true, get()))
		c.expect(fmt.Sprintf("HEADERS %d :status=200 content-type=text/plain set-cookie=secret=1 x-id=%d end", id, id))
		for _, f := range c.fields {
			if f.Name == "set-cookie" && !f.Sensitive {
				t.Error("a cookie is in the table")
			}
		}
		if last = len(c.seen); id == 1 {
			first = last
		}
	}
	if last > first-8 {
		t.Errorf("the first head takes %d bytes, the last one %d", first, last)
	}
}

func TestAppendField(t *testing.T) {
	var list []Field
	for _, f := range [][2]string{{"Content-Type", "a"}, {"X-Other", " b\tc\r\nd "}, {"bad name", "x"}, {"", "x"}, {"utf8", "ü\xff"}} {
		list = AppendField(list, f[0], f[1])
	}
	if got, want := fmt.Sprintf("%q", list), fmt.Sprintf("%q", []Field{{Name: "content-type", Value: "a"}, {Name: "x-other", Value: "b\tc  d"}, {Name: "utf8", Value: "ü\xff"}}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Credit of the connection wakes those for whom it suffices, and not all that
// wait for it, and who grants it byte by byte is cut off. net/http's server goes
// on, as a yardstick.
func TestTinyConnectionCreditWakesFew(t *testing.T) {
	const few, many = 100, 2 * allowanceMax
	attack := func(connect func(*testing.T, answering, ...uint32) *client) *client {
		c := connect(t, func(int) []byte { return make([]byte, 1<<20) }, settingInitialWindow, 1<<20)
		for i := range uint32(attackedStreams) {
			c.send(open(2*i+1, true, get()))
		}
		if n := c.receive(defaultWindow); n != defaultWindow {
			t.Fatalf("%d bytes came, want %d", n, defaultWindow)
		}
		return c
	}
	c := attack(ours)
	blocked := func() { // all streams, so the server has nothing left to do
		waitFor(func() bool { return c.locked(func() bool { return c.server.out.blocked == attackedStreams }) })
	}
	blocked()
	before := 0
	c.locked(func() bool { before = c.server.out.woken; return true })
	for range few {
		if c.drip(1) != 1 {
			t.Fatal("it has been cut off early")
		}
		blocked()
	}
	c.locked(func() bool {
		if n := c.server.out.woken - before; n == 0 || n > 2*few {
			t.Errorf("%d wake-ups for %d frames", n, few)
		}
		return true
	})
	taken, theirs := few+c.drip(many-few), attack(yardstick).drip(many)
	t.Logf("of %d frames %d are taken, net/http: %d", many, taken, theirs)
	if taken > allowanceMax || taken > theirs {
		t.Errorf("%d frames of a byte each were taken, want at most %d, or %d as net/http takes", taken, allowanceMax, theirs)
	}
}

// drip grants the connection a byte n times, and returns how often that was taken
// before the connection was cut.
func (c *client) drip(n int) (taken int) {
	for taken < n {
		batch := min(n-taken, 500)
		_, _ = c.nc.Write(bytes.Repeat(appendWord(nil, frameWindowUpdate, 0, 1), batch)) // or it has been cut
		got := c.receive(batch)
		if taken += got; got < batch {
			break
		}
	}
	return taken
}

// receive reads up to n bytes of answers' bodies, less if the connection ends.
func (c *client) receive(n int) (got int) {
	for got < n {
		f, err := c.next()
		if err != nil {
			break
		}
		if f.kind == frameData {
			got += f.length
		}
	}
	return got
}
