package h2

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// FuzzConn: whatever a client sends, the connection ends with it, and so do its
// handlers, which get only what is well formed.
func FuzzConn(f *testing.F) {
	f.Add([]byte(preface), false)
	f.Add(frames([]byte(preface), settingsFrame(), open(1, true, get()), raw(frameReset, 0, 1, word(8))), false)
	for _, list := range [][][]byte{
		{settingsFrame(settingInitialWindow, 1), open(1, false, post("content-length", "3")), data(1, false, "ab"), data(1, true, "c"), appendWord(nil, frameWindowUpdate, 0, 5), appendWord(nil, frameWindowUpdate, 1, 500)},
		{settingsFrame(settingTableSize, 0, settingMaxFrame, 1<<20), raw(frameHeaders, flagPadded|flagPriority, 3, "\x01\x00\x00\x00\x01\x05"+get("cookie", "a", "cookie", "b")+"\x00"), raw(frameContinuation, flagEndHeaders, 3, list("te", "trailers"))},
		{open(1, false, post()), data(1, false, "ab"), open(1, true, list("sum", "1")), raw(framePing, 0, 0, "12345678"), raw(frameGoAway, 0, 0, "12345678"), raw(framePriority, 0, 7, "12345")},
	} {
		var short []byte
		for _, b := range list {
			head := parseFrame(b)
			short = append(short, byte(head.kind), head.flags, byte(head.stream), byte(head.length))
			short = append(short, b[frameHeaderLen:]...)
		}
		f.Add(short, true)
	}
	f.Fuzz(func(t *testing.T, sent []byte, short bool) {
		s := &Server{MaxStreams: 3, MaxHeaderBytes: 1000, HeadTicks: 10, IdleTicks: 10, ClientTicks: 3}
		near, far := net.Pipe()
		c := serve(t, s, near, far, func(s *Stream) {
			if !http1.SimpleRequest(s.Method, "/", s.Authority) || s.Method != "CONNECT" && !validPath(s.Method, s.Path) {
				t.Errorf("a malformed request: %+v", s.Request)
			}
			for _, f := range s.Fields {
				if !grammar.IsLowerToken(f.Name) || !grammar.IsValue(f.Value) {
					t.Errorf("a malformed field: %+v", f)
				}
			}
			buf := make([]byte, 100)
			var n int64
			for {
				k, err := s.Read(buf)
				if n += int64(k); err == io.EOF && s.ContentLength >= 0 && n != s.ContentLength {
					t.Errorf("a body of %d bytes with Content-Length %d", n, s.ContentLength)
				}
				if err != nil {
					break
				}
			}
			s.Answer(200, s.Fields, []byte("body"), false)
			s.End(s.Trailer())
		})
		if short {
			sent = unfold(sent)
		}
		go io.Copy(io.Discard, near)
		go func() {
			near.Write(sent)
			for range 40 { // all that waits is given up
				c.server.Check(false)
			}
			near.Close()
		}()
		select {
		case <-c.done:
		case <-time.After(time.Minute):
			t.Fatal("it hangs")
		}
		if c.server.running != 0 || len(c.server.streams) != 0 {
			t.Errorf("%d handlers, %d streams are left", c.server.running, len(c.server.streams))
		}
	})
}

// unfold makes a connection of frames whose heads are written with a byte for
// each part, so that the fuzzer makes frames of fitting lengths.
func unfold(short []byte) []byte {
	sent := frames([]byte(preface), settingsFrame())
	for len(short) >= 4 {
		payload := short[4:]
		payload = payload[:min(len(payload), int(short[3]))]
		sent = append(sent, raw(frameKind(short[0]%11), short[1], uint32(short[2]%8), string(payload))...)
		short = short[4+len(payload):]
	}
	return sent
}
